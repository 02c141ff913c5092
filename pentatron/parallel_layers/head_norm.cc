// SPDX-License-Identifier: Apache-2.0
#include "pentatron/parallel_layers/head_norm.h"

#include <utility>

#include "pentatron/ops/norm.h"
#include "pentatron/parallel_layers/make_parameter.h"

namespace pentatron::parallel_layers {

HeadNorm::HeadNorm(const LeafContext& context, const nn::ParameterPlan& plan,
                   const std::string& name, const NormForm& form)
    : epsilon_(form.epsilon), zero_centred_(form.zero_centred) {
  if (auto weight = make_parameter_if_planned(context, plan, name + ".weight")) {
    weight_ = &add_parameter(std::move(weight));
  }
  if (auto bias = make_parameter_if_planned(context, plan, name + ".bias")) {
    bias_ = &add_parameter(std::move(bias));
  }
}

Tensor HeadNorm::forward(const Tensor& x_tnd, nn::StepContext& step) {
  const DType statistics = step.policy.statistics;
  if (weight_ == nullptr) return ops::l2_norm(x_tnd, epsilon_, statistics, step.scope);
  if (bias_ == nullptr) {
    return ops::rms_norm(x_tnd, *weight_, epsilon_, statistics, step.scope, zero_centred_);
  }
  return ops::layer_norm(x_tnd, *weight_, *bias_, epsilon_, statistics, step.scope, zero_centred_);
}

LeafRule head_norm_rule(std::string name, std::int64_t head_dim, const NormForm& form) {
  LeafRule rule = norm_rule(std::move(name), head_dim, form);
  rule.of_cut_rows = true;
  return rule;
}

}  // namespace pentatron::parallel_layers
