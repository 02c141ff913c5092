// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/charsmap.h"

#include <gtest/gtest.h>
#include <unicode/brkiter.h>
#include <unicode/unistr.h>

#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "pentatron/base/error.h"
#include "pentatron/base/test_support.h"
#include "pentatron/tokenizers/base64.h"
#include "pentatron/tokenizers/bpe_test_support.h"
#include "pentatron/tokenizers/grapheme.h"
#include "pentatron/tokenizers/hugging_face_tokenizer.h"
#include "pentatron/tokenizers/normalizer.h"
#include "pentatron/tokenizers/sentence_piece_test_support.h"
#include "pentatron/tokenizers/staged_tokenizer.h"

// Against the reference library on the published rules: tools/reference/tokenizer_families.py.
namespace pentatron::tokenizers {
namespace {

using nlohmann::json;
using testing::base64_of;
using testing::random_text;
using testing::utf8;

std::string four_bytes(std::uint32_t value) {
  std::string bytes;
  for (int i = 0; i < 4; ++i) bytes += static_cast<char>((value >> (8 * i)) & 0xFFU);
  return bytes;
}

// Rules as a double array, by first fit.
class RuleWriter final {
 public:
  std::string write(const std::map<std::string, std::string>& rules) {
    std::map<std::string, std::uint32_t> values;
    for (const auto& [key, text] : rules) {
      values[key] = static_cast<std::uint32_t>(texts_.size());
      texts_ += text;
      texts_ += '\0';
    }
    units_.assign(1, 0);
    used_.assign(1, true);
    place("", 0, values);
    units_.resize((units_.size() + 255) / 256 * 256);  // as Darts-clone fills up
    std::string bytes = four_bytes(static_cast<std::uint32_t>(4 * units_.size()));
    for (const std::uint32_t unit : units_) bytes += four_bytes(unit);
    return bytes + texts_;
  }

 private:
  // The node of the keys that begin with `prefix` stands at `at`.
  void place(const std::string& prefix, std::size_t at,
             const std::map<std::string, std::uint32_t>& values) {
    std::vector<std::size_t> children;
    for (const auto& [key, value] : values) {
      if (!key.starts_with(prefix)) continue;
      const std::size_t byte =
          key.size() == prefix.size() ? 0 : static_cast<std::uint8_t>(key[prefix.size()]);
      if (children.empty() || children.back() != byte) children.push_back(byte);
    }
    std::size_t base = 1;
    const auto fits = [&] {
      if (bases_.contains(base)) return false;
      for (const std::size_t byte : children) {
        if ((base ^ byte) < used_.size() && used_[base ^ byte]) return false;
      }
      return true;
    };
    while (!fits()) ++base;
    bases_.insert(base);
    units_[at] |= static_cast<std::uint32_t>((at ^ base) << 10);
    for (const std::size_t byte : children) {
      const std::size_t child = base ^ byte;
      if (child >= units_.size()) units_.resize(child + 1), used_.resize(child + 1, false);
      used_[child] = true;
      if (byte == 0) {
        units_[at] |= 1U << 8;
        units_[child] = (1U << 31) | values.at(prefix);
      } else {
        units_[child] = static_cast<std::uint32_t>(byte);
      }
    }
    for (const std::size_t byte : children) {
      if (byte != 0) place(prefix + static_cast<char>(byte), base ^ byte, values);
    }
  }

  std::vector<std::uint32_t> units_;
  std::vector<bool> used_;
  std::set<std::size_t> bases_;
  std::string texts_;
};

NormalizerPtr precompiled(std::string_view bytes) {
  return make_normalizer({{"type", "Precompiled"}, {"precompiled_charsmap", base64_of(bytes)}},
                         "t");
}

TEST(Base64, EncodedBytesComeBackAndNothingElseDoes) {
  std::mt19937 rng(4);
  for (std::size_t size = 0; size < 50; ++size) {
    std::string bytes(size, '\0');
    for (char& c : bytes) c = static_cast<char>(rng());
    EXPECT_EQ(base64_decoded(base64_of(bytes)), bytes);
  }
  EXPECT_EQ(base64_decoded("TWFu"), "Man");  // RFC 4648's alphabet
  for (const char* wrong : {"A", "AB", "ABC", "A===", "AB=C", "AB\nC", "AB-_", "===="}) {
    EXPECT_FALSE(base64_decoded(wrong)) << wrong;
  }
}

// ICU's own iterator finds the same borders.
TEST(Grapheme, ClustersAreThoseOfIcu) {
  const std::vector<std::string> picks = {
      "a",          "\r",         "\n",     "\u0301", "\u200d",     "\u1100",
      "\u1161",     "\u11a8",     "\uac00", "\uac01", "\U0001F1E9", "\U0001F1EA",
      "\U0001F468", "\U0001F3FD", "\u2764", "\ufe0f", "\u0915",     "\u093f",
      "\u0600",     "\u0e33",     "\u200b", " ",      "\U000E0067", "\u06dd"};
  UErrorCode status = U_ZERO_ERROR;
  const std::unique_ptr<icu::BreakIterator> borders(
      icu::BreakIterator::createCharacterInstance(icu::Locale::getRoot(), status));
  ASSERT_TRUE(U_SUCCESS(status));
  std::mt19937 rng(11);
  for (int trial = 0; trial < 20'000; ++trial) {
    std::string text;
    for (unsigned i = 0; i < 1 + rng() % 8; ++i) {
      text += rng() % 8 == 0 ? random_text(rng, 1, true) : picks[rng() % picks.size()];
    }
    const icu::UnicodeString wide = icu::UnicodeString::fromUTF8(text);
    borders->setText(wide);
    std::size_t at = 0;
    for (std::int32_t from = borders->first(), to = borders->next(); to != icu::BreakIterator::DONE;
         from = to, to = borders->next()) {
      std::string cluster;
      wide.tempSubStringBetween(from, to).toUTF8String(cluster);
      ASSERT_LT(at, text.size());
      ASSERT_EQ(text.substr(at, grapheme_size(text, at)), cluster)
          << json(text).dump(-1, ' ', true);
      at += cluster.size();
    }
    ASSERT_EQ(at, text.size());
  }
  EXPECT_EQ(grapheme_size("\xFF\u0301", 0), 1U);
  EXPECT_EQ(grapheme_size("a\x80", 0), 1U);
}

TEST(Charsmap, ShortestKeyOfEachCluster) {
  const std::string bytes = RuleWriter().write({{"\uFB01", "fi"},
                                                {"e\u0301", "\u00e9"},
                                                {"\r", " "},
                                                {"\u200b", ""},
                                                {"\u3042\u3099", "X"},
                                                {"A", "a"},
                                                {"AB", "never: its first letter is a key"}});
  const Charsmap rules(bytes, "t");
  EXPECT_EQ(rules.find("\uFB01x"), "fi");
  EXPECT_EQ(rules.find("\u200b"), "");
  EXPECT_EQ(rules.find("AB"), "a");
  EXPECT_FALSE(rules.find("e"));
  EXPECT_FALSE(rules.find("x\uFB01"));
  EXPECT_FALSE(rules.find(""));
  EXPECT_FALSE(rules.find(std::string_view("\0A", 2)));
  const auto normal = [normalizer = precompiled(bytes)](std::string_view text) {
    return normalizer->apply(text);
  };
  EXPECT_EQ(normal("\uFB01n ABBA"), "fin aBBa");
  EXPECT_EQ(normal("e\u0301te\u0301"), "\u00e9t\u00e9");
  // One character to a reader: the first key stands for all of it, marks and line feeds too.
  EXPECT_EQ(normal("a\r\nb\rc\n"), "a b c\n");
  EXPECT_EQ(normal("A\u0301"), "a");
  // Six bytes and more: code point by code point, so that a key of two never matches.
  EXPECT_EQ(normal("\u3042\u3099"), "\u3042\u3099");
  EXPECT_EQ(normal("A\u0301\u0301\u0301"), "a\u0301\u0301\u0301");
  EXPECT_EQ(normal("x\u200by"), "xy");
  // Bytes that are no text stay, and so does a zero byte.
  EXPECT_EQ(normal(std::string_view("\xFF\0A\xC3", 4)), std::string_view("\xFF\0a\xC3", 4));
  // A million marks on one letter: the cluster is looked at once.
  const std::string marks = "A" + testing::repeat("\u0301", 1'000'000);
  EXPECT_EQ(normal(marks), "a" + marks.substr(1));
}

TEST(Charsmap, DamagedRulesAreRefusedOrHarmless) {
  const std::string bytes =
      RuleWriter().write({{"\uFB01", "fi"}, {"e\u0301", "\u00e9"}, {"A", "a"}});
  const auto refused = [](const std::string& damaged, const std::string& part) {
    expect_error(ErrorKind::kData, part, [&] { (void)Charsmap(damaged, "file"); });
  };
  refused("", "0 bytes");
  refused("abc", "3 bytes");
  refused(four_bytes(0) + "a", "trie of 0 bytes");
  refused(four_bytes(6) + "abcdefgh", "trie of 6 bytes");
  refused(four_bytes(8) + "abcd", "trie of 8 bytes");
  refused(four_bytes(0xFFFFFFFC) + "abcd", "trie of 4294967292 bytes");
  refused(bytes + "\xFF", "not valid UTF-8");
  refused(bytes + "x", "has no end");
  // A trie of 256 units, some of which are given.
  const auto trie = [](const std::map<std::size_t, std::uint32_t>& units) {
    std::string text = four_bytes(1024);
    for (std::size_t i = 0; i < 256; ++i) text += four_bytes(units.contains(i) ? units.at(i) : 0U);
    return text + std::string("x\0", 2);
  };
  EXPECT_EQ(
      Charsmap(trie({{0, 1U << 10}, {1 ^ 'A', ('A' ^ 3U) << 10 | 1U << 8 | 'A'}, {2, 1U << 31}}),
               "file")
          .find("A"),
      "x");
  refused(trie({{0, 256U << 10}}), "leads outside");
  refused(trie({{0, 1U << 10 | 1U << 9}}), "leads outside");
  refused(trie({{0, 1U << 10}, {1 ^ 'A', ('A' ^ 3U) << 10 | 1U << 8 | 'A'}, {2, 1U << 31 | 2}}),
          "stands for no text");
  // The children of 'A' are its brothers: keys without end.
  refused(trie({{0, 1U << 10}, {1 ^ 'A', 'A' << 10 | 'A'}}), "more than 256 bytes");
  refused(trie({{0, 1U << 10}, {1 ^ 'A', 'A' << 10 | 1U << 8 | 'A'}, {1, 1U << 31}}),
          "more than 32 keys");
  expect_error(ErrorKind::kData, "base64", [] {
    (void)make_normalizer({{"type", "Precompiled"}, {"precompiled_charsmap", "?"}}, "t");
  });
  std::mt19937 rng(5);
  for (int trial = 0; trial < 20'000; ++trial) {
    std::string damaged = bytes.substr(0, trial % 4 == 0 ? rng() % bytes.size() : bytes.size());
    for (unsigned i = 0; i < 1 + rng() % 4 && !damaged.empty(); ++i) {
      damaged[rng() % damaged.size()] = static_cast<char>(rng());
    }
    try {
      (void)precompiled(damaged)->apply("\uFB01 e\u0301te\u0301 ABBA\r\n\xFF");
    } catch (const Error& error) {
      ASSERT_EQ(error.kind(), ErrorKind::kData);
    }
  }
}

TEST(Nmt, ControlsGoAndWideSpacesAreSpaces) {
  const auto normalizer = make_normalizer({{"type", "Nmt"}}, "t");
  EXPECT_EQ(normalizer->apply("a\x01\x7F\u0008b\tc\nd\u200be\uFEFFf\u3000g\u0085h\xFF"),
            "ab c d e f\u3000g\u0085h\xFF");
}

#if !defined(__SANITIZE_ADDRESS__)  // no SentencePiece there

// The tokenizer.json that converters make of a model.
json converted(const testing::SentencePieceContent& content) {
  json vocab = json::array();
  for (const auto& [piece, score] : content.pieces) vocab.push_back({piece, score});
  const json stages =
      json::array({{{"type", "Precompiled"}, {"precompiled_charsmap", base64_of(content.charsmap)}},
                   {{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}},
                   {{"type", "Replace"}, {"pattern", {{"Regex", " {2,}"}}}, {"content", " "}}});
  return {
      {"version", "1.0"},
      {"normalizer", {{"type", "Sequence"}, {"normalizers", stages}}},
      {"pre_tokenizer",
       {{"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", "always"}}},
      {"decoder",
       {{"type", "Sequence"},
        {"decoders", json::array({{{"type", "ByteFallback"}},
                                  {{"type", "Metaspace"}, {"replacement", "\u2581"}}})}}},
      {"model", {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", vocab}, {"byte_fallback", true}}}};
}

// A model's own normalisation, and that of the tokenizer.json with its rules: the same ids.
TEST(Charsmap, RulesOfEverySentencePieceModel) {
  const std::vector<std::string> texts = {"abc",
                                          "\uFF21\uFF22\uFF43 hij",
                                          "\uFB01bc \uFB00",
                                          "e\u0301te\u0301 u\u0308b",
                                          "wide\u3000space\u00a0here",
                                          "a\u200bb \ufeffc",
                                          "\u2460\u00bd\u2167 abc",
                                          "\uAC00 \u30AC",
                                          "Stra\u00dfe ABCDEF \u0130",
                                          "tab\there",
                                          "\U0001F468\u200D\U0001F469 \U0001F1E9\U0001F1EA",
                                          "\u0958 \u0915\u093c"};
  for (const char* rule : {"nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf"}) {
    const std::string model = testing::trained_model(
        testing::some_lines(), std::string("vocab_size=320\nbyte_fallback=true\n"
                                           "model_type=unigram\nnormalization_rule_name=") +
                                   rule + "\n");
    const testing::SentencePieceContent content = testing::content_of(model);
    ASSERT_GT(content.charsmap.size(), 100'000U) << rule;
    const auto reference = testing::tokenizer_of(model);
    const StagedTokenizer tokenizer(parse_tokenizer_json(converted(content).dump(), rule), {}, {},
                                    false);
    for (const std::string& text : texts) {
      EXPECT_EQ(tokenizer.encode(text), reference->encode(text)) << rule << ": " << text;
      EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)),
                reference->decode(reference->encode(text)))
          << rule << ": " << text;
    }
  }
}

// What tokenizers 0.23.3 makes of them, where a character of several code points is normalised in
// another way than by SentencePiece itself.
TEST(Charsmap, CharactersOfSeveralCodePointsAsTheLibrary) {
  const auto normalizer = precompiled(
      testing::content_of(
          testing::trained_model(testing::some_lines(), "vocab_size=60\nhard_vocab_limit=false\n"))
          .charsmap);
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"a\u0308\u0323b", "\u00e4b"},
      {"\uac00\u1100\u1161", "\uac00\u1100\u1161"},
      {"\u30ab\u3099", "\u30ab\u3099"},
      {"\uff76\uff9e", "\u30ab\u3099"},
      {"e\u0301te\u0301", "\u00e9t\u00e9"},
      {"a\r\nb", "a b"},
      {"\u2460\u0301", "1"}};
  for (const auto& [text, expected] : cases) EXPECT_EQ(normalizer->apply(text), expected) << text;
}

#endif

}  // namespace
}  // namespace pentatron::tokenizers
