// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/parallel_layers/linear_leaf.h"

namespace pentatron::parallel_layers {

// y = x W^T + b with W whole on every tensor-parallel rank: [local rows, in] -> [local rows, out].
// What is split over the ranks reads it through split_linear.h or for_split(), which sum their
// gradients. Planned with an adapter: kInternal.
class WholeLinear final : public LinearLeaf {
 public:
  using LinearLeaf::LinearLeaf;
  [[nodiscard]] Tensor forward(const Tensor& x_ti, nn::StepContext& step);
  // Columns of it on their way to what is split over the ranks (enter_split): [tokens, columns].
  [[nodiscard]] Tensor for_split(const Tensor& y_to) const;
};

}  // namespace pentatron::parallel_layers
