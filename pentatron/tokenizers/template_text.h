// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// Python's str methods on UTF-8, for filters and methods of chat templates.
namespace pentatron::tokenizers::chat {

enum class Sides { kBoth, kLeft, kRight };

// Without white space at the sides, or without the code points of `characters` where it is given.
[[nodiscard]] std::string strip(std::string_view text, Sides sides);
[[nodiscard]] std::string strip(std::string_view text, Sides sides, std::string_view characters);

[[nodiscard]] std::string upper(std::string_view text);
[[nodiscard]] std::string lower(std::string_view text);
[[nodiscard]] std::string capitalize(std::string_view text);
// Each run of letters begins in upper case and goes on in lower case.
[[nodiscard]] std::string title(std::string_view text);

// At most `most` replacements; < 0: all.
[[nodiscard]] std::string replace(std::string_view text, std::string_view from, std::string_view to,
                                  std::int64_t most = -1);

// At white space, or at a separator; at most `most` cuts (< 0: all), from the right too.
[[nodiscard]] std::vector<std::string> split(std::string_view text, std::int64_t most,
                                             bool from_right);
[[nodiscard]] std::vector<std::string> split(std::string_view text, std::string_view separator,
                                             std::int64_t most, bool from_right);
[[nodiscard]] std::vector<std::string> split_lines(std::string_view text, bool keep_ends);

}  // namespace pentatron::tokenizers::chat
