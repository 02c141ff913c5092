// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/fim.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "pentatron/base/error.h"
#include "pentatron/tokenizers/bpe_test_support.h"
#include "pentatron/tokenizers/bpe_tokenizer.h"
#include "pentatron/tokenizers/null_tokenizer.h"

namespace pentatron::datasets {
namespace {

using Tokens = std::vector<std::int64_t>;
using tokenizers::NullTokenizer;

// Integers as text; the largest are the tokens of fill in the middle.
FimOptions number_options() {
  return {.rate = 1.0,
          .prefix_token = "60",
          .middle_token = "61",
          .suffix_token = "62",
          .pad_token = "59",
          .eod_token = "63"};
}

// Documents 11 to 15, then 21 to 25 of two fragments, nothing, 31 to 34 without an end.
const Tokens kText = {11, 12, 13, 14, 15, 63, 21, 22, 58, 23, 24, 25, 63, 63, 31, 32, 33, 34};

Tokens applied(const FimOptions& options, std::int64_t seed) {
  const NullTokenizer tokenizer(64);
  NumpyRandomState random(seed);
  return FimTransform(options, tokenizer).apply(kText, random);
}

TEST(NumpyRandom, Binomial) {
  NumpyRandomState random(1234);
  std::vector<int> drawn;
  for (const double p : {.5, .1, .9, .3, 0., 1., .5, .5, .7, .5}) {
    drawn.push_back(random.happens(p) ? 1 : 0);
  }
  EXPECT_EQ(drawn, (std::vector<int>{0, 0, 1, 1, 0, 1, 0, 1, 0, 1}));
  std::vector<std::uint64_t> integers;
  for (int i = 0; i < 4; ++i) integers.push_back(random.random_interval(999));
  EXPECT_EQ(integers, (std::vector<std::uint64_t>{442, 120, 880, 476})) << "randint(0, 1000)";
}

// What NumPy and a transcription of the definition into Python give.
TEST(Fim, EqualsTheDefinitionDrawForDraw) {
  const FimOptions whole = number_options();
  EXPECT_EQ(applied(whole, 1),
            (Tokens{60, 11, 12, 13, 62, 15, 61, 14, 63, 60, 62, 25, 61, 21, 22, 58, 23, 24}));
  EXPECT_EQ(applied(whole, 2),
            (Tokens{60, 62, 5, 61, 11, 12, 13, 14, 1, 63, 60, 21, 22, 5, 62, 23, 24, 25}));
  EXPECT_EQ(applied(whole, 3),
            (Tokens{60, 11, 62, 14, 15, 61, 12, 13, 63, 60, 21, 22, 58, 2, 62, 24, 25, 61}));
  FimOptions half = whole;
  half.rate = 0.5;
  EXPECT_EQ(applied(half, 10),
            (Tokens{60, 62, 2, 13, 14, 15, 61, 11, 1, 63, 60, 62, 61, 21, 22, 58, 23, 24}));
  // Nothing is permuted; the second of two ends of document is left out, as in Megatron.
  EXPECT_EQ(applied(half, 11),
            (Tokens{11, 12, 13, 14, 15, 63, 21, 22, 58, 23, 24, 25, 63, 31, 32, 33, 34, 59}));
}

TEST(Fim, FragmentsAndTextsThatStay) {
  FimOptions split = number_options();
  split.split_sample = "58";
  split.fragment_rate = 1.0;
  EXPECT_EQ(applied(split, 1),
            (Tokens{60, 11, 12, 13, 62, 15, 61, 14, 63, 60, 62, 1, 22, 61, 2, 58, 60, 62}));
  EXPECT_EQ(applied(split, 3),
            (Tokens{60, 11, 62, 14, 15, 61, 12, 13, 63, 60, 21, 62, 22, 61, 58, 60, 23, 24}));
  split.rate = 0.9;
  split.spm_rate = 0.3;
  split.fragment_rate = 0.5;
  EXPECT_EQ(applied(split, 7),
            (Tokens{60, 11, 12, 62, 14, 15, 61, 13, 63, 60, 62, 1, 22, 61, 2, 58, 23, 24}));
  FimOptions no_prefix = number_options();
  no_prefix.no_prefix = "21";
  EXPECT_EQ(applied(no_prefix, 2),
            (Tokens{60, 62, 5, 61, 11, 12, 13, 14, 1, 63, 21, 22, 58, 23, 24, 25, 63, 60}));
}

TEST(Fim, KeyedByTheSample) {
  const NullTokenizer tokenizer(64);
  const FimTransform fim(number_options(), tokenizer);
  EXPECT_EQ(fim.apply(kText, 1234, 7), fim.apply(kText, 1234, 7));
  EXPECT_NE(fim.apply(kText, 1234, 7), fim.apply(kText, 1234, 8));
  EXPECT_NE(fim.apply(kText, 1234, 7), fim.apply(kText, 1235, 7));
}

// The three parts, put back in order, are the text, whatever its characters are.
TEST(Fim, PartsJoinToTheText) {
  std::mt19937 rng(5);
  const tokenizers::BpeTokenizer tokenizer(tokenizers::testing::small_vocabulary());
  const FimOptions options{.rate = 1.0,
                           .prefix_token = "\x01",
                           .middle_token = "\x02",
                           .suffix_token = "\x03",
                           .pad_token = "\x04"};
  const FimTransform fim(options, tokenizer);
  const std::int64_t prefix = *tokenizer.token_id("\x01");
  const std::int64_t middle = *tokenizer.token_id("\x02");
  const std::int64_t suffix = *tokenizer.token_id("\x03");
  const std::int64_t pad = *tokenizer.token_id("\x04");
  int spm = 0;
  constexpr int kTrials = 400;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::string text = tokenizers::testing::random_text(rng, 30, true);
    std::erase_if(text, [](char c) { return c >= 0 && c < 5; });
    const std::vector<std::int32_t> ids = tokenizer.encode(text);
    Tokens padded(ids.begin(), ids.end());
    // Room for what the cuts add: they fall inside tokens.
    const Tokens spare(40, *tokenizer.token_id(" "));
    padded.insert(padded.end(), spare.begin(), spare.end());
    const std::string whole = text + std::string(40, ' ');
    const Tokens out = fim.apply(padded, 1, trial);
    ASSERT_EQ(out.size(), padded.size());
    ASSERT_EQ(out.front(), prefix);
    const auto at = [&](std::int64_t id) { return std::ranges::find(out, id) - out.begin(); };
    const auto words = [&](std::ptrdiff_t begin, std::ptrdiff_t end) {
      std::vector<std::int32_t> part;
      for (auto i = begin; i < end; ++i) {
        if (out[static_cast<std::size_t>(i)] == pad) break;
        part.push_back(static_cast<std::int32_t>(out[static_cast<std::size_t>(i)]));
      }
      return tokenizer.decode(part);
    };
    const auto size = static_cast<std::ptrdiff_t>(out.size());
    const bool first_suffix = out[1] == suffix;
    spm += first_suffix ? 1 : 0;
    const std::string joined = first_suffix ? words(at(middle) + 1, size) + words(2, at(middle))
                                            : words(1, at(suffix)) + words(at(middle) + 1, size) +
                                                  words(at(suffix) + 1, at(middle));
    // Cut at the end of the sample, the last part may lack its end.
    if (out.back() != pad) continue;
    EXPECT_EQ(joined, whole) << trial;
  }
  // Half of them, within four standard deviations.
  EXPECT_NEAR(spm, kTrials / 2, 4 * std::sqrt(kTrials) / 2);
}

TEST(Fim, SharesOverMany) {
  const NullTokenizer tokenizer(64);
  FimOptions options = number_options();
  options.rate = 0.3;
  options.spm_rate = 0.8;
  const FimTransform fim(options, tokenizer);
  const Tokens text = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  constexpr int kTrials = 4000;
  int permuted = 0;
  int spm = 0;
  for (int i = 0; i < kTrials; ++i) {
    const Tokens out = fim.apply(text, 1234, i);
    if (out == text) continue;
    ++permuted;
    spm += out[1] == 62 ? 1 : 0;
  }
  EXPECT_NEAR(permuted, 0.3 * kTrials, 4 * std::sqrt(0.3 * 0.7 * kTrials));
  // A prefix without characters looks like the other order: 1 cut in about 28.
  EXPECT_NEAR(spm, (0.8 + 0.2 * 2 / 28) * permuted, 4 * std::sqrt(0.2 * 0.8 * permuted) + 10);
}

TEST(Fim, OptionsThatCannotBe) {
  const NullTokenizer tokenizer(64);
  const auto error = [&](const FimOptions& options) {
    try {
      const FimTransform fim(options, tokenizer);
    } catch (const Error& thrown) {
      EXPECT_EQ(thrown.kind(), ErrorKind::kConfig);
      return std::string(thrown.what());
    }
    return std::string();
  };
  FimOptions options = number_options();
  options.middle_token = "<fim_middle>";
  EXPECT_NE(error(options).find("--fim-middle-token <fim_middle>"), std::string::npos);
  options = number_options();
  options.split_sample = "58";
  EXPECT_NE(error(options).find("--fim-fragment-rate"), std::string::npos);
  options.fragment_rate = 1.5;
  EXPECT_NE(error(options).find("1.5"), std::string::npos);
  EXPECT_EQ(error(number_options()), "");
}

}  // namespace
}  // namespace pentatron::datasets
