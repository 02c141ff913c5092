// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "pentatron/nn/module.h"
#include "pentatron/nn/parameter_plan.h"
#include "pentatron/parallel_layers/leaf_context.h"
#include "pentatron/parallel_layers/norm_form.h"

namespace pentatron::parallel_layers {

// LayerNorm or RMSNorm of this rank's token rows, [local rows, hidden] -> the same shape. Weights
// are whole on every rank.
class Norm final : public nn::Module {
 public:
  // Another kind than NormForm names is a config error.
  Norm(const LeafContext& context, const nn::ParameterPlan& plan, const std::string& name,
       const NormForm& form);
  [[nodiscard]] Tensor forward(const Tensor& x_th, nn::StepContext& step);

 private:
  LeafContext context_;
  double epsilon_;
  bool zero_centred_;
  nn::Parameter* weight_;
  nn::Parameter* bias_;  // null: RMSNorm
};

}  // namespace pentatron::parallel_layers
