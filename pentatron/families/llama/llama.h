// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "pentatron/families/family.h"

// What Llama's files and those of its kind (Mistral, Qwen, SmolLM) share.
namespace pentatron::families {

// RMSNorm before attention and mlp, rotary embedding, SwiGLU, no biases.
void start_llama(ModelConfig& model);
// Sizes, epsilon, activation, initial deviation; without rotary keys, biases and ties.
[[nodiscard]] KeyRules llama_sizes();
[[nodiscard]] std::span<const NameRule> llama_names(const ModelConfig& model);
[[nodiscard]] std::span<const std::string_view> llama_ignored_tensors();

}  // namespace pentatron::families
