// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pentatron::tokenizers {

// A regular expression of a tokenizer's pre-tokenizer, matched in linear time: it is compiled into
// a deterministic automaton over classes of characters, so there is neither backtracking nor
// recursion on the text. The match is the one that Perl, Oniguruma and Rust's regex choose: the
// first alternative that matches, quantifiers as greedy or lazy as written.
//
// Understood: alternation, groups ( ) (?: ) (?i: ), character classes with ranges and negation,
// \p{..} \P{..} (general categories, White_Space) \s \S \d \D \w \W \r \n \t \f \v, escaped
// characters, the dot, quantifiers ? * + {n} {n,} {n,m}, their lazy forms, and lookahead for one
// character (?=x) (?!x). Possessive quantifiers are understood where what follows cannot begin with
// a character that they take: they mean the same as greedy ones there. Everything else is refused
// with kData ("pattern: what").
class SplitPattern final {
 public:
  explicit SplitPattern(std::string_view pattern);

  struct Match {
    std::size_t begin;
    std::size_t end;  // above begin: empty matches do not count
  };
  // The leftmost match at or after `from` (a border of characters). Bytes that are not part of
  // valid UTF-8 are single characters that only negated classes hold. `looks` counts the characters
  // looked at over all searches in one text: above kMaxLooks times its length they end with a kData
  // error, so that no pattern makes them quadratic (no published one comes near).
  [[nodiscard]] std::optional<Match> find(std::string_view text, std::size_t from,
                                          std::uint64_t& looks) const;

  [[nodiscard]] const std::string& text() const { return pattern_; }

  static constexpr std::uint64_t kMaxLooks = 32;

 private:
  // Bit 0: the pattern matches before this character; the rest: the next state, 0 if there is none.
  using Transition = std::uint32_t;

  [[nodiscard]] std::uint8_t class_of(char32_t code_point) const {
    return classes_[(static_cast<std::size_t>(blocks_[code_point >> 8]) << 8) | (code_point & 255)];
  }

  std::string pattern_;
  std::vector<std::uint16_t> blocks_;  // code point / 256 -> block of classes_
  std::vector<std::uint8_t> classes_;
  std::array<std::uint8_t, 128> ascii_classes_{};
  std::size_t num_classes_ = 0;  // the last one is the end of the text
  std::vector<Transition> transitions_;
};

}  // namespace pentatron::tokenizers
