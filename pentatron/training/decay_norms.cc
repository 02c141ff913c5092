// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/decay_norms.h"

namespace pentatron::training {

bool is_qk_norm(std::string_view name) {
  return name.find(".q_layernorm.") != std::string_view::npos ||
         name.find(".k_layernorm.") != std::string_view::npos;
}

void decay_qk_norms(const config::RunConfig& config,
                    const std::vector<nn::Parameter*>& parameters) {
  if (!config.optimizer.apply_wd_to_qk_layernorm) return;
  for (nn::Parameter* parameter : parameters) {
    if (is_qk_norm(parameter->local_name())) parameter->decay_vectors();
  }
}

}  // namespace pentatron::training
