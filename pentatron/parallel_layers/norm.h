// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "pentatron/nn/module.h"
#include "pentatron/nn/parameter_plan.h"
#include "pentatron/parallel_layers/leaf_context.h"

namespace pentatron::parallel_layers {

// LayerNorm or RMSNorm of this rank's token rows, [local rows, hidden] -> the same shape. Weights
// are whole on every rank.
class Norm final : public nn::Module {
 public:
  // `kind`: "LayerNorm" (weight and bias) or "RMSNorm" (weight); another name is a config error
  // (--normalization).
  Norm(const LeafContext& context, const nn::ParameterPlan& plan, const std::string& name,
       std::string_view kind, double epsilon);
  [[nodiscard]] Tensor forward(const Tensor& x_th, nn::StepContext& step);

 private:
  LeafContext context_;
  double epsilon_;
  nn::Parameter* weight_;
  nn::Parameter* bias_;  // null: RMSNorm
};

}  // namespace pentatron::parallel_layers
