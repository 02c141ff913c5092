// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

#include "pentatron/config/config.h"
#include "pentatron/nn/parameter.h"

namespace pentatron::training {

// Whether the parameter belongs to a norm of queries or keys, by its name
// ("decoder.layers.3.self_attention.q_layernorm.weight").
[[nodiscard]] bool is_qk_norm(std::string_view name);

// With --apply-wd-to-qk-layernorm, weight decay applies to weights and biases of those norms among
// `parameters`; before an optimizer is made of them.
void decay_qk_norms(const config::RunConfig& config, const std::vector<nn::Parameter*>& parameters);

}  // namespace pentatron::training
