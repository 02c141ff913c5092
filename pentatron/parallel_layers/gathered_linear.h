// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "pentatron/nn/module.h"
#include "pentatron/parallel_layers/column_linear.h"

namespace pentatron::parallel_layers {

// y = x W^T + b with W's output rows split over the tensor-parallel ranks and y whole on each of
// them again: [local rows, hidden] -> the same shape. It stands where a linear layer replaces
// attention or mlp.
class GatheredLinear final : public nn::Module {
 public:
  // `name`: local name without ".weight".
  GatheredLinear(const LeafContext& context, const nn::ParameterPlan& plan,
                 const std::string& name);
  [[nodiscard]] Tensor forward(const Tensor& x_th, nn::StepContext& step);

 private:
  LeafContext context_;
  ColumnLinear& linear_;
};

}  // namespace pentatron::parallel_layers
