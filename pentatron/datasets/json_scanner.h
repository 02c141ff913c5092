// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pentatron::datasets {

// A field of the outermost object: offsets into the line, quotes of the key included.
struct JsonField {
  std::size_t key_begin = 0;
  std::size_t key_end = 0;
  std::size_t value_begin = 0;
  std::size_t value_end = 0;
};

struct JsonScan {
  std::vector<JsonField> fields;
  // Unset: the line is one JSON object.
  std::optional<std::string> error;
  std::size_t error_offset = 0;  // the byte where the line stops being one
};

// Checks that a line is one JSON object (RFC 8259, at most 1,024 levels deep) without converting
// anything: a number may be of any size, an escape may name half of a surrogate pair, and NaN,
// Infinity and -Infinity pass, which Python writes and reads. The caller converts what it needs.
// The text must be valid UTF-8 (not checked). No recursion; linear.
[[nodiscard]] JsonScan scan_json_object(std::string_view line);

}  // namespace pentatron::datasets
