// SPDX-License-Identifier: Apache-2.0
#include "pentatron/families/registry.h"

#include <array>

namespace pentatron::families {

std::span<const Family* const> families() {
  static const std::array kFamilies = {&llama(),  &gpt2(),       &qwen2(),    &qwen3(), &mistral(),
                                       &smollm(), &starcoder2(), &nemotron(), &phi3(),  &gpt_neox(),
                                       &gemma2(), &gemma3(),     &falcon(),   &olmo2()};
  return kFamilies;
}

}  // namespace pentatron::families
