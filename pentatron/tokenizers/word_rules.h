// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace pentatron::tokenizers {

// Published patterns of byte-level tokenizers that word_scanner.h cuts by hand. Their words cover
// the text without gaps.
enum class WordRule : std::uint8_t {
  kGpt2,        // r50k_base, p50k_base too
  kCl100k,      // cl100k_base since tiktoken 0.8: white space that ends the text is one word
  kLlama3,      // cl100k_base as first published; Llama 3
  kQwen2,       // as Llama 3, but every digit alone
  kO200k,       // o200k_base, gpt-oss, Llama 4
  kMegatronV1,  // --tiktoken-pattern v1
  kMegatronV2,
};
inline constexpr std::array kAllWordRules = {
    WordRule::kGpt2,  WordRule::kCl100k,     WordRule::kLlama3,    WordRule::kQwen2,
    WordRule::kO200k, WordRule::kMegatronV1, WordRule::kMegatronV2};

// The regular expression of a rule, in the terms of SplitPattern.
[[nodiscard]] std::string_view word_rule_pattern(WordRule rule);

// The rule that cuts as this regular expression does, by the text of the expression: that of
// word_rule_pattern() or another published form of it. None for other expressions.
[[nodiscard]] std::optional<WordRule> known_word_rule(std::string_view pattern);

}  // namespace pentatron::tokenizers
