// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pentatron/tokenizers/tokenizer.h"

namespace pentatron::tokenizers {

// A character of a changed text, and how it came to be: 0 it stands for one character of the text
// before, 1 it was put in behind the last one, -n it stands for one, and the n after it went.
struct TextChange {
  std::string text;
  int change = 0;
};

// A text on its way through normalisers, and where in the original each byte comes from: the whole
// character, as the `tokenizers` library tells it. What is put in comes from what stands before it.
class AlignedText final {
 public:
  AlignedText() = default;
  // Of a piece of the original that begins at `begin`.
  AlignedText(std::string_view original, std::size_t begin);

  [[nodiscard]] const std::string& text() const { return text_; }
  // Of each byte of text().
  [[nodiscard]] const std::vector<TokenSpan>& origins() const { return origins_; }
  // Of what is put in before everything.
  [[nodiscard]] TokenSpan begin() const { return {.begin = begin_, .end = begin_}; }

  // Character by character; the first `removed` characters go.
  void transform(std::span<const TextChange> changes, std::size_t removed = 0);
  // `text`, which comes from the first character, before it. Nothing before an empty text.
  void prepend(std::string_view text);
  void keep(std::size_t begin, std::size_t end);
  void append(std::string_view text, TokenSpan origin);

 private:
  std::string text_;
  std::vector<TokenSpan> origins_;
  std::size_t begin_ = 0;  // in the original
};

// What bytes [begin, end) with these origins stand for: from the first one's begin to the last
// one's end.
[[nodiscard]] TokenSpan joined_origin(std::span<const TokenSpan> origins);

}  // namespace pentatron::tokenizers
