// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/csrc/autograd/edge.h>

#include <vector>

#include "pentatron/tensor/tensor.h"

// Backward over recorded graphs, on every device, on the calling thread. The library's engine hands
// the nodes of a GPU to a thread of its own and copies its thread-local state twice a node; here a
// backward that runs inside another (recomputation) is a plain call, work goes to the stream that
// is current, and a small model on a CPU does not wait for bookkeeping.
namespace pentatron::ops {

// Runs the graphs behind `roots` with the library's rules: the node recorded last goes first,
// gradients that meet are summed in that order, every gradient is checked and cast to what the
// forward recorded, hooks are called, and nodes let go of what they saved. Errors of a node come
// through. Work of all nodes goes to the current stream: forward ran there, or the caller waited.
void run_graph(const std::vector<torch::autograd::Edge>& roots,
               const std::vector<Tensor>& gradients);

}  // namespace pentatron::ops
