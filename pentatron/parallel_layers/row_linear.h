// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/parallel_layers/linear_leaf.h"

namespace pentatron::parallel_layers {

// y = sum over ranks of x_local W_local^T, + b once, with W's input columns split over the
// tensor-parallel ranks. Input [tokens, local in]; output [local rows, out]. The bias is added
// after the reduction.
class RowLinear final : public LinearLeaf {
 public:
  using LinearLeaf::LinearLeaf;
  [[nodiscard]] Tensor forward(const Tensor& x_ti, nn::StepContext& step);
};

}  // namespace pentatron::parallel_layers
