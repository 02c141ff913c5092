// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

// Environment variables with checked values. Errors are ErrorKind::kConfig and name the variable.
namespace pentatron {

// The value, or nothing when the variable is unset; an empty value is a value.
[[nodiscard]] std::optional<std::string> env_string(const char* name);

// A decimal integer in [min, max]; nothing when the variable is unset. Anything else (empty, text
// after the number, out of range) is an error that names variable, value and range.
[[nodiscard]] std::optional<std::int64_t> env_int(
    const char* name, std::int64_t min = std::numeric_limits<std::int64_t>::min(),
    std::int64_t max = std::numeric_limits<std::int64_t>::max());

}  // namespace pentatron
