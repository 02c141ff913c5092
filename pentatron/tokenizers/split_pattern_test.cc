// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/split_pattern.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "pentatron/base/error.h"

namespace pentatron::tokenizers {
namespace {

std::vector<std::string> words(const SplitPattern& pattern, std::string_view text) {
  std::vector<std::string> found;
  std::uint64_t looks = 0;
  std::size_t at = 0;
  while (const auto match = pattern.find(text, at, looks)) {
    found.emplace_back(text.substr(match->begin, match->end - match->begin));
    at = match->end;
  }
  return found;
}

using Words = std::vector<std::string>;

TEST(SplitPattern, TakesTheFirstAlternativeThatMatches) {
  EXPECT_EQ(words(SplitPattern("a|ab"), "abab"), (Words{"a", "a"}));
  EXPECT_EQ(words(SplitPattern("ab|a"), "abaab"), (Words{"ab", "a", "ab"}));
  EXPECT_EQ(words(SplitPattern("(?:a|ab)c"), "abc ac"), (Words{"abc", "ac"}));
}

TEST(SplitPattern, QuantifiersAreGreedyOrLazy) {
  EXPECT_EQ(words(SplitPattern("a{2,3}"), "aaaaa"), (Words{"aaa", "aa"}));
  EXPECT_EQ(words(SplitPattern("a{2,3}?"), "aaaaa"), (Words{"aa", "aa"}));
  EXPECT_EQ(words(SplitPattern("a+?b"), "aab"), (Words{"aab"}));
  EXPECT_EQ(words(SplitPattern("a{2}"), "aaa"), (Words{"aa"}));
  EXPECT_EQ(words(SplitPattern("a{2,}"), "aaaa a"), (Words{"aaaa"}));
  EXPECT_EQ(words(SplitPattern("[0-9]?x"), "1x x"), (Words{"1x", "x"}));
}

// What backtracking engines do when a greedy part took too much.
TEST(SplitPattern, GivesBackWhatTheRestNeeds) {
  EXPECT_EQ(words(SplitPattern(R"(\s*[\r\n]+)"), "  \n  x"), (Words{"  \n"}));
  EXPECT_EQ(words(SplitPattern(R"(\s+(?!\S)|\s+)"), "a   b "), (Words{"  ", " ", " "}));
  EXPECT_EQ(words(SplitPattern("[A-Z]*[A-Za-c]+[0-9]"), "ABC1"), (Words{"ABC1"}));
  EXPECT_EQ(words(SplitPattern("[ab]*[bc]+"), "aabbab"), (Words{"aabbab"}));
  EXPECT_EQ(words(SplitPattern("[ab]*[bc]+"), "aabaa"), (Words{"aab"}));
}

TEST(SplitPattern, ClassesAndProperties) {
  EXPECT_EQ(words(SplitPattern(R"(\p{Lu}\p{Ll}*)"), "ÄrgerUnd ÉcoleX"),
            (Words{"Ärger", "Und", "École", "X"}));
  EXPECT_EQ(words(SplitPattern(R"([^\s\p{L}]+)"), "a1!b ü2"), (Words{"1!", "2"}));
  EXPECT_EQ(words(SplitPattern("[一-龥぀-ゟ゠-ヿ]+"), "x漢字かなy"), (Words{"漢字かな"}));
  EXPECT_EQ(words(SplitPattern(R"([\]\\\-a]+)"), "x]\\-a"), (Words{"]\\-a"}));
  EXPECT_EQ(words(SplitPattern("(?i:'s|'RE)"), "'S 're 'x"), (Words{"'S", "'re"}));
  EXPECT_EQ(words(SplitPattern(R"(\w+)"), "a_1é-b"), (Words{"a_1é", "b"}));
  EXPECT_EQ(words(SplitPattern(R"(x(?=y))"), "xy xz"), (Words{"x"}));
}

TEST(SplitPattern, InvalidBytesBelongToNegatedClassesAlone) {
  EXPECT_EQ(words(SplitPattern(R"([^\s\p{L}\p{N}]+)"),
                  "a\xff\xfe"
                  "b"),
            (Words{"\xff\xfe"}));
  EXPECT_TRUE(words(SplitPattern(R"(\p{L}+)"), "\xe4\xb8").empty());
}

// A possessive quantifier is one that never gives back: the same as a greedy one where nothing that
// follows could use what it took.
TEST(SplitPattern, PossessiveWhereItMeansGreedy) {
  EXPECT_EQ(words(SplitPattern(R"( ?[^\s\p{L}\p{N}]++[\r\n]*)"), " ..\n"), (Words{" ..\n"}));
  EXPECT_THROW(SplitPattern("a++a"), Error);
  EXPECT_THROW(SplitPattern("a*+ab"), Error);
}

TEST(SplitPattern, RefusesWhatItDoesNotUnderstand) {
  for (const char* pattern : {"(a",
                              "a)",
                              "[a",
                              "a{2",
                              "*a",
                              "a**",
                              "(?<=a)b",
                              "(?>a)",
                              "(?<n>a)",
                              "^a",
                              "a$",
                              R"(\b)",
                              R"(\p{Nonsense})",
                              "(?!ab)",
                              "[a&&b]",
                              "[[:alpha:]]",
                              "a{3,2}",
                              "a{5000}",
                              "(a*)*",
                              "(?=a)+",
                              R"(\)",
                              "[b-a]",
                              "\xff"}) {
    try {
      const SplitPattern refused(pattern);
      ADD_FAILURE() << pattern << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kData) << pattern;
    }
  }
  EXPECT_THROW(SplitPattern(std::string(200, '(') + "a" + std::string(200, ')')), Error);
}

// Characters looked at, not seconds: published patterns stay near the text's length on hostile
// runs, and a pattern that could not is stopped.
TEST(SplitPattern, LooksAtTheTextALinearNumberOfTimes) {
  const SplitPattern llama(
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)");
  for (const char* piece : {"a", " ", "\n", "1", ".", " \n", "A", "'", "\xff", "漢", "' "}) {
    std::string text;
    while (text.size() < 200'000) text += piece;
    std::uint64_t looks = 0;
    std::size_t at = 0;
    while (const auto match = llama.find(text, at, looks)) at = match->end;
    EXPECT_EQ(at, text.size()) << piece;
    EXPECT_LE(looks, 4 * text.size()) << piece;
  }
  const SplitPattern quadratic("a*b|a");
  EXPECT_THROW(words(quadratic, std::string(20'000, 'a')), Error);
}

// A quantifier inside a quantifier: engines that go back try every way of dividing a run.
TEST(Cases, Tokenizers_2060) {
  for (const char* hostile : {"(?:a+)+b", "(?:a*)*b", "(?:a|a)*b", "(?:a|aa)+b", "(?:.*a){12}b"}) {
    std::uint64_t looks = 0;
    const std::string run(20'000, 'a');
    try {
      const SplitPattern pattern(hostile);
      EXPECT_EQ(pattern.find(run, 0, looks), std::nullopt) << hostile;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kData) << hostile;  // refused, or stopped by its looks
    }
    EXPECT_LE(looks, (SplitPattern::kMaxLooks + 1) * run.size()) << hostile;
  }
  std::uint64_t looks = 0;
  const auto match = SplitPattern("(?:a+)+b").find("xaaab", 0, looks);
  ASSERT_TRUE(match.has_value());
  EXPECT_EQ(match->begin, 1U);
  EXPECT_EQ(match->end, 5U);
}

}  // namespace
}  // namespace pentatron::tokenizers
