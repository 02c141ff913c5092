// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace pentatron::tokenizers {

// One past the last code point: a byte that is not part of valid UTF-8. It belongs to every set
// that is written as a negation and to no other.
inline constexpr char32_t kInvalidByte = 0x110000;

// Code points as ascending, disjoint ranges [first, last].
class CodePointSet final {
 public:
  using Range = std::pair<char32_t, char32_t>;

  CodePointSet() = default;
  [[nodiscard]] static CodePointSet of(char32_t first, char32_t last);
  // By ICU's Unicode data: a general category ("L", "Lu", ...) or "White_Space". Throws kData for
  // another name.
  [[nodiscard]] static CodePointSet property(std::string_view name);

  void add(const CodePointSet& other);
  // Everything else, the invalid byte included.
  [[nodiscard]] CodePointSet negated() const;
  // With every simple case variant of its members.
  [[nodiscard]] CodePointSet case_insensitive() const;

  [[nodiscard]] bool contains(char32_t code_point) const;
  [[nodiscard]] const std::vector<Range>& ranges() const { return ranges_; }

 private:
  std::vector<Range> ranges_;
};

// Punctuation and control characters (Cc, Cf, Co) as BERT's tokenizers know them: by Unicode 8,
// which the reference libraries stopped at. ASCII symbols count as punctuation.
[[nodiscard]] bool is_bert_punctuation(char32_t code_point);
[[nodiscard]] bool is_bert_control(char32_t code_point);

// The code point at `position`, and the bytes it takes; kInvalidByte and 1 for a byte that is not
// part of valid UTF-8. `position` < text.size().
struct DecodedCodePoint {
  char32_t value;
  std::uint32_t size;
};
[[nodiscard]] DecodedCodePoint code_point_at(std::string_view text, std::size_t position);

}  // namespace pentatron::tokenizers
