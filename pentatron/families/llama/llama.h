// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <vector>

#include "pentatron/families/family.h"

// What Llama's files and those of its kind (Mistral, Qwen, SmolLM) share.
namespace pentatron::families {

// RMSNorm before attention and mlp, rotary embedding, SwiGLU, no biases.
void start_llama(ModelConfig& model);
// Sizes, epsilon, activation, initial deviation; without rotary keys, biases and ties. Of the
// library's class: the epsilon of a file without one, and head_dim if that is not hidden size /
// heads.
struct LlamaDefaults {
  double epsilon = 1e-6;
  std::optional<std::int64_t> head_size = {};
};
[[nodiscard]] KeyRules llama_sizes(const LlamaDefaults& missing = {});
[[nodiscard]] std::span<const NameRule> llama_names(const ModelConfig& model);
// Of files whose layers have one norm less or other matrices: what is `own` goes before Llama's.
[[nodiscard]] std::vector<NameRule> llama_names_with(std::initializer_list<NameRule> own);
// The family with what it shares with Llama: prefix, ignored tensors, and start_llama(),
// llama_names() and its name as model type where it has none of its own.
[[nodiscard]] Family of_llama_kind(Family family);

}  // namespace pentatron::families
