// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/csrc/autograd/edge.h>

#include <vector>

#include "pentatron/tensor/tensor.h"

// Backward over recorded graphs on the calling thread. The library's engine prepares every node for
// another thread (its thread-local state is copied twice a node), which small models on a CPU feel.
namespace pentatron::ops {

// Runs the graphs behind `roots` as the library's engine does: the node recorded last goes first,
// gradients that meet are summed in that order, every gradient is checked and cast to what the
// forward recorded, and nodes let go of what they saved. False, with nothing run, where a graph
// holds what only the engine knows: tensors of a card, or hooks. Errors of a node come through.
[[nodiscard]] bool run_graph(const std::vector<torch::autograd::Edge>& roots,
                             const std::vector<Tensor>& gradients);

}  // namespace pentatron::ops
