// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pentatron::datasets {

// What is wrong with a line; `column` counts bytes from 1.
struct JsonlProblem {
  std::int64_t column = 1;
  std::string message;
};

// Reads one line of a JSONL corpus: a JSON object whose chosen keys hold the text, either a string
// or an array of strings (sentences). Strict: one object a line, valid UTF-8, no byte order mark,
// no chosen key twice, no lone surrogates in its text. Of other fields only the grammar counts:
// their values are never converted (see json_scanner.h). One object per thread.
class JsonlParser final {
 public:
  explicit JsonlParser(std::vector<std::string> keys);
  ~JsonlParser();
  JsonlParser(const JsonlParser&) = delete;
  JsonlParser& operator=(const JsonlParser&) = delete;

  // On success texts()[k] holds the pieces of key k, valid until the next call. `readable`: bytes
  // that may be read from the line's first one on; a line with a few behind it is not copied.
  [[nodiscard]] std::optional<JsonlProblem> parse(std::string_view line, std::size_t readable = 0);

  // Gives back the memory that long lines needed; texts() are no longer valid.
  void release_large_buffers();

  [[nodiscard]] const std::vector<std::vector<std::string_view>>& texts() const { return texts_; }

 private:
  struct Impl;
  [[nodiscard]] std::optional<JsonlProblem> explain(std::string_view line);

  std::vector<std::string> keys_;
  std::unique_ptr<Impl> impl_;
  std::vector<std::vector<std::string_view>> texts_;
};

// Only JSON whitespace (carriage returns too).
[[nodiscard]] bool is_blank(std::string_view line);

// Offset of the first byte that is not part of valid UTF-8; none in valid text.
[[nodiscard]] std::optional<std::size_t> invalid_utf8_offset(std::string_view text);

}  // namespace pentatron::datasets
