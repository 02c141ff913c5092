// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "pentatron/nn/module.h"
#include "pentatron/nn/parameter_plan.h"
#include "pentatron/parallel_layers/leaf_context.h"
#include "pentatron/parallel_layers/leaf_rule.h"

namespace pentatron::parallel_layers {

// Normalises every head of queries or keys by itself: [rows, local heads, d] -> the same shape. The
// weights [d] are shared by all heads of all ranks.
class HeadNorm final : public nn::Module {
 public:
  // With the planned weights: LayerNorm where there is a bias, else RMSNorm; without any (`name` is
  // not planned): x / rms(x).
  HeadNorm(const LeafContext& context, const nn::ParameterPlan& plan, const std::string& name,
           const NormForm& form);
  [[nodiscard]] Tensor forward(const Tensor& x_tnd, nn::StepContext& step);

 private:
  double epsilon_;
  bool zero_centred_;
  nn::Parameter* weight_ = nullptr;
  nn::Parameter* bias_ = nullptr;
};

[[nodiscard]] LeafRule head_norm_rule(std::string name, std::int64_t head_dim,
                                      const NormForm& form);

}  // namespace pentatron::parallel_layers
