// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <string>

namespace pentatron::tensor {

// Exit code of a program that ran out of memory, of the host or of a GPU; no kind of Error has it.
inline constexpr int kOutOfMemoryExitCode = 9;

// Where `error` is the library's refusal of memory for a tensor: one message with the bytes asked
// for (where the library tells them), those in use, and what to change. Empty for other errors.
[[nodiscard]] std::string out_of_memory_text(const std::exception& error);

}  // namespace pentatron::tensor
