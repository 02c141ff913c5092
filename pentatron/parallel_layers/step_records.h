// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "pentatron/nn/step_context.h"
#include "pentatron/parallel_layers/leaf_context.h"

namespace pentatron::parallel_layers {

// Whose a sum over the token rows of this rank is: under sequence parallelism its own, otherwise
// every tensor-parallel rank has the same.
[[nodiscard]] nn::Share share_of_rows(const LeafContext& context);

// An auxiliary loss, from wherever it arises: records `loss_sum` (a scalar, the sum over this
// rank's rows) under the name of its ledger entry, and returns x with the loss joined to its graph,
// so that backward through x also gives the loss its seed. Without a ledger or without a graph: x
// itself.
[[nodiscard]] Tensor join_loss(const LeafContext& context, const Tensor& x, const std::string& name,
                               const Tensor& loss_sum, nn::StepContext& step);

}  // namespace pentatron::parallel_layers
