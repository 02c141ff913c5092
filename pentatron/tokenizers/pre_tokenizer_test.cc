// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/pre_tokenizer.h"

#include <gtest/gtest.h>
#include <unicode/uchar.h>

#include "pentatron/tokenizers/bpe_test_support.h"

namespace pentatron::tokenizers {
namespace {

using testing::random_text;
using testing::repeat;
using testing::split;
using Words = std::vector<std::string>;

struct CodePoint {
  std::string text;
  CharClass type;
};

std::vector<CodePoint> code_points(std::string_view text) {
  std::vector<CodePoint> result;
  while (!text.empty()) {
    // A sequence is valid if it is what its own code point encodes to.
    std::size_t size = 1;
    CharClass type = CharClass::kOther;
    for (std::size_t length = 1; length <= std::min<std::size_t>(4, text.size()); ++length) {
      char32_t c = static_cast<std::uint8_t>(text[0]);
      if (length > 1) c &= 0xFFU >> (length + 1);
      for (std::size_t i = 1; i < length; ++i) {
        c = (c << 6) | (static_cast<std::uint8_t>(text[i]) & 0x3F);
      }
      const bool surrogate = c >= 0xD800 && c < 0xE000;
      if (c < 0x110000 && !surrogate && testing::utf8(c) == text.substr(0, length)) {
        size = length;
        const auto icu = static_cast<UChar32>(c);
        const int category = u_charType(icu);
        type = u_isUWhiteSpace(icu)                                           ? CharClass::kSpace
               : category >= U_UPPERCASE_LETTER && category <= U_OTHER_LETTER ? CharClass::kLetter
               : category >= U_DECIMAL_DIGIT_NUMBER && category <= U_OTHER_NUMBER
                   ? CharClass::kNumber
                   : CharClass::kOther;
      }
    }
    result.push_back({std::string(text.substr(0, size)), type});
    text.remove_prefix(size);
  }
  return result;
}

// GPT-2's pattern, alternative by alternative, on decoded code points.
Words slow_split(std::string_view text) {
  const std::vector<CodePoint> symbols = code_points(text);
  const std::size_t count = symbols.size();
  const auto run = [&](std::size_t at, CharClass type) {
    while (at < count && symbols[at].type == type) ++at;
    return at;
  };
  const auto end_of_match = [&](std::size_t at) {
    for (const std::string_view tail : {"s", "t", "re", "ve", "m", "ll", "d"}) {
      std::string ahead;
      for (std::size_t i = at + 1; i < count && i <= at + tail.size(); ++i)
        ahead += symbols[i].text;
      if (symbols[at].text == "'" && ahead == tail) return at + 1 + tail.size();
    }
    for (const CharClass type : {CharClass::kLetter, CharClass::kNumber, CharClass::kOther}) {
      const std::size_t begin = symbols[at].text == " " ? at + 1 : at;
      if (run(begin, type) > begin) return run(begin, type);
    }
    const std::size_t all = run(at, CharClass::kSpace);
    return all < count && all - at > 1 ? all - 1 : all;
  };
  Words words;
  for (std::size_t at = 0; at < count;) {
    const std::size_t end = end_of_match(at);
    std::string word;
    for (; at < end; ++at) word += symbols[at].text;
    words.push_back(word);
  }
  return words;
}

TEST(PreTokenizer, FollowsThePatternOnKnownTexts) {
  EXPECT_EQ(split("I'Ll we'll've  x\n\n y"),
            (Words{"I", "'", "Ll", " we", "'ll", "'ve", " ", " x", "\n\n", " y"}));
  EXPECT_EQ(split("don\u2019t 'S it's"), (Words{"don", "\u2019", "t", " '", "S", " it", "'s"}));
  EXPECT_EQ(split("z\u0301e\u0301 \u0967\u0968\u0969 \u00bd\u2167\u00b2"),
            (Words{"z", "\u0301", "e", "\u0301", " \u0967\u0968\u0969", " \u00bd\u2167\u00b2"}));
  EXPECT_EQ(split("\ud55c\uae00 \U0001F600\U0001F3FD _x __ "),
            (Words{"\ud55c\uae00", " \U0001F600\U0001F3FD", " _", "x", " __", " "}));
  EXPECT_EQ(split("<|endoftext|>a"), (Words{"<|", "endoftext", "|>", "a"}));
  EXPECT_EQ(split(" 's"), (Words{" '", "s"}));
  EXPECT_EQ(split("a \u3000b"), (Words{"a", " ", "\u3000", "b"}));
  EXPECT_EQ(split(""), Words{});
  EXPECT_EQ(split("   "), Words{"   "});
  EXPECT_EQ(split("'"), Words{"'"});
  EXPECT_EQ(split("x'r"), (Words{"x", "'", "r"}));
}

TEST(PreTokenizer, WhiteSpaceIsUnicodesProperty) {
  for (const char32_t c : {U'\t', U'\v', U'\u0085', U'\u00a0', U'\u2028', U'\u202f', U'\u3000'}) {
    EXPECT_EQ(char_class(c), CharClass::kSpace) << static_cast<unsigned>(c);
  }
  // Separators of other standards, zero-width characters and the old Mongolian separator are not.
  for (const char32_t c : {U'\x1c', U'\x1f', U'\u180e', U'\u200b', U'\ufeff', U'\u0301'}) {
    EXPECT_EQ(char_class(c), CharClass::kOther) << static_cast<unsigned>(c);
  }
}

TEST(PreTokenizer, AsciiTableEqualsIcu) {
  for (UChar32 c = 0; c < 128; ++c) {
    const CharClass expected = u_isalpha(c)         ? CharClass::kLetter
                               : u_isdigit(c)       ? CharClass::kNumber
                               : u_isUWhiteSpace(c) ? CharClass::kSpace
                                                    : CharClass::kOther;
    EXPECT_EQ(char_class(static_cast<char32_t>(c)), expected) << c;
  }
}

TEST(PreTokenizer, InvalidBytesAreOtherSymbols) {
  EXPECT_EQ(split("a\xFF\xC3 b"), (Words{"a", "\xFF\xC3", " b"}));
  EXPECT_EQ(split("\xE4\xB8"), Words{"\xE4\xB8"});
  // A surrogate's bytes and an overlong slash are no characters.
  EXPECT_EQ(split("a\xED\xA0\x80z\xC0\xAFz"), (Words{"a", "\xED\xA0\x80", "z", "\xC0\xAF", "z"}));
}

TEST(PreTokenizer, EqualsThePatternOnRandomTexts) {
  std::mt19937 rng(7);
  for (int round = 0; round < 4000; ++round) {
    const std::string text = random_text(rng, 1 + rng() % 30, round % 2 == 0);
    ASSERT_EQ(split(text), slow_split(text)) << "round " << round;
  }
}

TEST(PreTokenizer, LooksAtEverySymbolAFewTimesOnly) {
  for (const std::string_view piece :
       {"a", " ", "1", "!", "'", "\u0301", "\n", " a", "  a", "'l", "\xFF"}) {
    const std::string text = repeat(piece, 200'000);
    PreTokenizer scanner(text);
    std::size_t bytes = 0;
    for (std::string_view word; scanner.next(word);) bytes += word.size();
    EXPECT_EQ(bytes, text.size());
    EXPECT_LE(scanner.steps(), 4 * text.size()) << piece;
  }
}

}  // namespace
}  // namespace pentatron::tokenizers
