// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

#include "tests/functional/tiny_run.h"

// Conversations and a tokenizer for them.
namespace pentatron::functional {

// A tokenizer.json of ASCII bytes and the special tokens of the prompt formats and of fill in the
// middle.
[[nodiscard]] std::filesystem::path tokenizer_folder();
// base() with a tokenizer of that folder and samples of 64 tokens.
[[nodiscard]] Options of_tokenizer(const std::string& type);

// Forty talks in the three forms that are known.
[[nodiscard]] std::filesystem::path talks();
// --sft on them.
[[nodiscard]] Options talking();

}  // namespace pentatron::functional
