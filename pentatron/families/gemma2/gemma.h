// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "pentatron/families/family.h"

// What Gemma 2 and 3 share.
namespace pentatron::families {

// RMSNorm as 1 + weight before and after attention and mlp, gated tanh GELU, scaled embeddings.
void start_gemma(ModelConfig& model);
// Sizes, activation, epsilon, scale of the scores; without rotary keys, windows and caps.
[[nodiscard]] KeyRules gemma_sizes();
[[nodiscard]] std::span<const NameRule> gemma_names(const ModelConfig& model);

}  // namespace pentatron::families
