// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace pentatron::tokenizers {

// The four classes that GPT-2's pattern tells apart: \p{L}, \p{N}, \s (White_Space), anything else.
enum class CharClass : std::uint8_t { kLetter, kNumber, kSpace, kOther };

// Class of a code point by ICU's Unicode data; unassigned ones and surrogates are kOther.
[[nodiscard]] CharClass char_class(char32_t code_point);

// Cuts text into the words of GPT-2's pattern, in order and without gaps:
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// as a scanner without backtracking: no code point is looked at more than four times. Bytes that
// are not part of valid UTF-8 are single symbols of class kOther.
class PreTokenizer final {
 public:
  // `text` must outlive the object.
  explicit PreTokenizer(std::string_view text) : text_(text) {}

  // The next word, never empty; false at the end of the text.
  [[nodiscard]] bool next(std::string_view& word);

  // Code points looked at so far.
  [[nodiscard]] std::uint64_t steps() const { return steps_; }

 private:
  struct Symbol {
    CharClass type;
    std::size_t size;  // bytes
  };
  [[nodiscard]] Symbol symbol_at(std::size_t position);
  [[nodiscard]] std::size_t run_end(std::size_t position, CharClass type);
  [[nodiscard]] std::size_t space_end(std::size_t position);
  [[nodiscard]] std::size_t contraction_size(std::size_t position) const;

  std::string_view text_;
  std::size_t position_ = 0;
  std::uint64_t steps_ = 0;
};

}  // namespace pentatron::tokenizers
