// SPDX-License-Identifier: Apache-2.0
#include "pentatron/parallel_layers/gathered_linear.h"

#include <memory>

#include "pentatron/parallel_layers/regions.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::parallel_layers {

GatheredLinear::GatheredLinear(const LeafContext& context, const nn::ParameterPlan& plan,
                               const std::string& name)
    : context_(context), linear_(add_child(std::make_unique<ColumnLinear>(context, plan, name))) {}

Tensor GatheredLinear::forward(const Tensor& x_th, nn::StepContext& step) {
  Tensor y = linear_.forward(x_th, step);
  const std::int64_t begin = linear_.part_begin(0), width = linear_.part_width(0);
  const std::int64_t end = linear_.part_total(0) - begin - width;
  if (begin == 0 && end == 0) return y;
  // Each rank adds its columns to the others' zeros: the sum of the ranks also deals out the rows
  // under sequence parallelism.
  const auto zeros = [&](std::int64_t columns) {
    return tensor::zeros({y.size(0), columns}, y.scalar_type(), y.device());
  };
  return leave_split(context_, tensor::cat({zeros(begin), y, zeros(end)}, 1));
}

}  // namespace pentatron::parallel_layers
