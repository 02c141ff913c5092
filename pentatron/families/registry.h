// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/families/family.h"

// One line a family: its folder's function, listed in registry.cc in the order in which families()
// has them.
namespace pentatron::families {

[[nodiscard]] const Family& llama();
[[nodiscard]] const Family& gpt2();
[[nodiscard]] const Family& qwen2();
[[nodiscard]] const Family& qwen3();
[[nodiscard]] const Family& mistral();
[[nodiscard]] const Family& smollm();
[[nodiscard]] const Family& starcoder2();
[[nodiscard]] const Family& nemotron();
[[nodiscard]] const Family& phi3();
[[nodiscard]] const Family& gpt_neox();
[[nodiscard]] const Family& gemma2();
[[nodiscard]] const Family& gemma3();
[[nodiscard]] const Family& falcon();
[[nodiscard]] const Family& olmo2();

}  // namespace pentatron::families
