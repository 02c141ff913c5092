// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pentatron/config/option_table.h"

// From the words a user wrote to a checked value.
namespace pentatron::config {

// Result of a conversion: a value, or what was expected instead.
struct Converted {
  std::optional<OptionValue> value;
  std::string expected;  // empty when there is a value
};

// Converts the words given to an option that takes values (not a switch) and applies choices,
// supported values and the check of its row. Numbers: decimal, the whole word, finite, at most 1e15
// in magnitude for integers.
[[nodiscard]] Converted convert_words(const OptionSpec& spec,
                                      const std::vector<std::string>& words);

// true/false, yes/no, on/off, True/False; nothing for any other word.
[[nodiscard]] std::optional<bool> parse_flag(std::string_view word);
[[nodiscard]] std::optional<std::int64_t> parse_integer(std::string_view word);
[[nodiscard]] std::optional<double> parse_number(std::string_view word);

}  // namespace pentatron::config
