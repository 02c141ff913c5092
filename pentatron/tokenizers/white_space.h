// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

// White space as Python's str methods and regular expressions know it, in UTF-8: evaluations
// and templates that were written for Python count and cut by it.
namespace pentatron::tokenizers {

// Bytes of the white-space character that begins at `at`; 0 when none does.
[[nodiscard]] std::size_t white_space_at(std::string_view text, std::size_t at);

// Without white space at both ends (str.strip).
[[nodiscard]] std::string_view stripped(std::string_view text);

// The last run of other characters (str.split()[-1]); empty when there is none.
[[nodiscard]] std::string_view last_word(std::string_view text);

}  // namespace pentatron::tokenizers
