// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tests/functional/run_program.h"

// Checkpoints that came out of `pentatron convert`, and what they generate.
namespace pentatron::functional {

// `pentatron convert import` of a Hugging Face folder, with more words behind.
[[nodiscard]] ProgramResult convert_import(const std::filesystem::path& hf,
                                           const std::filesystem::path& save,
                                           const std::vector<std::string>& more = {});

// Twenty tokens, each the likeliest, behind a prompt of three; a failure of the test unless
// generation ends well.
[[nodiscard]] std::string generated(const std::filesystem::path& load);

}  // namespace pentatron::functional
