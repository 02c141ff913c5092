// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "pentatron/base/activation_kind.h"
#include "pentatron/parallel_layers/linear_leaf.h"

namespace pentatron::parallel_layers {

// y = x W^T + b with W's output rows split over the tensor-parallel ranks, in named parts (q, k, v;
// gate, up; or one), each split by itself. Input [local rows, in]; output [tokens, local out], the
// parts side by side. Bias and adapters are there when planned.
class ColumnLinear final : public LinearLeaf {
 public:
  using LinearLeaf::LinearLeaf;

  [[nodiscard]] Tensor forward(const Tensor& x_ti, nn::StepContext& step);
  // `kind` of what forward gives, with the same bits.
  [[nodiscard]] Tensor forward_activation(const Tensor& x_ti, Activation kind,
                                          nn::StepContext& step);
  // forward, then one view [tokens, local heads, head_dim] per part, in order.
  [[nodiscard]] std::vector<Tensor> forward_heads(const Tensor& x_ti, std::int64_t head_dim,
                                                  nn::StepContext& step);

  [[nodiscard]] std::size_t num_parts() const { return weight().spec().parts.size(); }
  // Output channels of part `index` on this rank and on all, and the global number of the first.
  [[nodiscard]] std::int64_t part_width(std::size_t index) const;
  [[nodiscard]] std::int64_t part_total(std::size_t index) const;
  [[nodiscard]] std::int64_t part_begin(std::size_t index) const;
};

}  // namespace pentatron::parallel_layers
