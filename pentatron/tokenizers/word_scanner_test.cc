// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/word_scanner.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "pentatron/tokenizers/bpe_test_support.h"
#include "pentatron/tokenizers/split_pattern.h"

namespace pentatron::tokenizers {
namespace {

using Words = std::vector<std::string>;

// No character is looked at more often than this, over all words of a text.
constexpr std::uint64_t kMaxLooks = 8;

template <WordRule kRule>
Words scanned(std::string_view text) {
  const BasicWordScanner<true> scanner(text);
  Words words;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = scanner.word_end<kRule>(at);
    if (end <= at || end > text.size()) return {"no word at " + std::to_string(at)};
    words.emplace_back(text.substr(at, end - at));
    at = end;
  }
  if (scanner.looks() > kMaxLooks * text.size())
    return {"looks: " + std::to_string(scanner.looks())};
  return words;
}

Words scanned(WordRule rule, std::string_view text) {
  switch (rule) {
    case WordRule::kGpt2:
      return scanned<WordRule::kGpt2>(text);
    case WordRule::kCl100k:
      return scanned<WordRule::kCl100k>(text);
    case WordRule::kLlama3:
      return scanned<WordRule::kLlama3>(text);
    case WordRule::kQwen2:
      return scanned<WordRule::kQwen2>(text);
    case WordRule::kO200k:
      return scanned<WordRule::kO200k>(text);
    case WordRule::kMegatronV1:
      return scanned<WordRule::kMegatronV1>(text);
    case WordRule::kMegatronV2:
      return scanned<WordRule::kMegatronV2>(text);
  }
  return {};
}

// The automaton of the regular expression: the definition.
Words matched(const SplitPattern& pattern, std::string_view text) {
  Words words;
  std::uint64_t looks = 0;
  std::size_t at = 0;
  while (const auto match = pattern.find(text, at, looks)) {
    if (match->begin > at) words.emplace_back("gap: " + std::string(text.substr(at, match->begin)));
    words.emplace_back(text.substr(match->begin, match->end - match->begin));
    at = match->end;
  }
  if (at < text.size()) words.emplace_back("gap: " + std::string(text.substr(at)));
  return words;
}

// Characters that the rules tell apart, broken UTF-8, and runs longer than a register.
std::string hostile_text(std::mt19937& rng) {
  static const std::vector<std::string> kPieces = {"a",
                                                   "Z",
                                                   "the",
                                                   "THE",
                                                   "tHe",
                                                   "Aa",
                                                   "1",
                                                   "12345",
                                                   " ",
                                                   "  ",
                                                   "\n",
                                                   "\r\n",
                                                   "\r",
                                                   "\t",
                                                   "\v",
                                                   "\x1c",
                                                   "\x85",
                                                   "\u0085",
                                                   "\u00a0",
                                                   "\u2028",
                                                   "\u3000",
                                                   "'",
                                                   "'s",
                                                   "'S",
                                                   "'\u017f",
                                                   "'ll",
                                                   "'Ll",
                                                   "'rE",
                                                   "'d",
                                                   "''",
                                                   "/",
                                                   "//",
                                                   "/\n",
                                                   ".",
                                                   "...",
                                                   "-",
                                                   "_",
                                                   "\u00e9",
                                                   "\u0391",
                                                   "\u01c5",
                                                   "\u02b0",
                                                   "\u4e2d",
                                                   "\u0301",
                                                   "\u0663",
                                                   "\u00bd",
                                                   "\u2167",
                                                   "\U0001F642",
                                                   "\U0001D7D8",
                                                   "\xff",
                                                   "\xc2",
                                                   "\xe4\xb8",
                                                   "\xed\xa0\x80",
                                                   "\xf4\x90\x80\x80",
                                                   "\xc0\xaf",
                                                   "\u0378",
                                                   "\u1e9e"};
  std::string text;
  const std::size_t num_pieces = 1 + rng() % 12;
  for (std::size_t i = 0; i < num_pieces; ++i) {
    const std::size_t times = rng() % 16 == 0 ? 1 + rng() % 40 : 1;
    text += testing::repeat(kPieces[rng() % kPieces.size()], times);
  }
  return text;
}

TEST(WordScanner, CutsAsTheRegularExpressions) {
  for (const WordRule rule : kAllWordRules) {
    const SplitPattern pattern(word_rule_pattern(rule));
    EXPECT_EQ(known_word_rule(word_rule_pattern(rule)), rule);
    std::mt19937 rng(17);
    for (int round = 0; round < 20'000; ++round) {
      const std::string text =
          round % 2 == 0 ? hostile_text(rng) : testing::random_text(rng, rng() % 20, false);
      ASSERT_EQ(scanned(rule, text), matched(pattern, text))
          << "rule " << static_cast<int>(rule) << ", text " << ::testing::PrintToString(text);
    }
  }
}

// Every code point that has a name, and some that have none, after a letter, before one, beside
// numbers, spaces, symbols and itself.
TEST(WordScanner, KnowsEveryCodePoint) {
  const std::vector<SplitPattern> patterns = [] {
    std::vector<SplitPattern> all;
    for (const WordRule rule : kAllWordRules) all.emplace_back(word_rule_pattern(rule));
    return all;
  }();
  std::string text;
  const auto compare = [&](char32_t last) {
    for (std::size_t i = 0; i < patterns.size(); ++i) {
      ASSERT_TRUE(scanned(kAllWordRules[i], text) == matched(patterns[i], text))
          << "rule " << i << ", code points up to " << static_cast<std::uint32_t>(last);
    }
    text.clear();
  };
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    if (c >= 0x32400 && c < 0xE0000) c += 996;  // unassigned planes
    if (c >= 0xE0200) c += 1016;                // and private ones
    if (c >= 0x110000) break;
    const std::string one = testing::utf8(c);
    text += "a" + one + "b " + one + one + "!" + one + "A" + one + "1" + one;
    if (c % 4096 == 4095) compare(c);
  }
  compare(0x110000);
}

// A million bytes of one piece, of runs that end in something else, and of pieces that make a rule
// look ahead and go back: scanned() bounds the looks.
TEST(WordScanner, HostileRunsCostLinearWork) {
  const std::vector<std::string> pieces = {
      "a",      "A",       " ",        "\n", "1",  "!",   "'",   "\u0301",  "\u0301A",
      "\u4e2d", "\u4e2dA", "\xff",     "a ", " a", "\n ", " \n", "A\u0301", "/",
      "'s",     "\u00a0",  "\u3000\n", "aA", "Aa", "A1",  "' "};
  for (const WordRule rule : kAllWordRules) {
    for (const std::string& piece : pieces) {
      for (const char* end : {"", "1", "a", " ", "\n", "!"}) {
        const std::string text = testing::repeat(piece, 100'000 / piece.size()) + end;
        const Words words = scanned(rule, text);
        ASSERT_FALSE(words.empty());
        EXPECT_FALSE(words[0].starts_with("looks") || words[0].starts_with("no word"))
            << words[0] << ", piece " << ::testing::PrintToString(piece);
      }
    }
    const Words one = scanned(rule, std::string(1'000'000, 'a'));
    EXPECT_EQ(one.size(), 1U);
  }
}

TEST(WordScanner, KnowsOtherFormsOfThePatterns) {
  EXPECT_EQ(known_word_rule(R"('(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++)"
                            R"(|\s++$|\s+(?!\S)|\s)"),
            WordRule::kGpt2);
  EXPECT_EQ(known_word_rule(R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+)"
                            R"(| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s)"),
            WordRule::kCl100k);
  EXPECT_EQ(known_word_rule(R"(\p{L}+)"), std::nullopt);
  // White space at the end of the text is where the two forms of cl100k_base differ.
  EXPECT_EQ(scanned(WordRule::kCl100k, "a\n  "), (Words{"a", "\n  "}));
  EXPECT_EQ(scanned(WordRule::kLlama3, "a\n  "), (Words{"a", "\n", "  "}));
}

}  // namespace
}  // namespace pentatron::tokenizers
