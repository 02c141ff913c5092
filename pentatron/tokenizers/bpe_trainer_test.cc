// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/bpe_trainer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "pentatron/base/error.h"
#include "pentatron/base/temp_folder.h"
#include "pentatron/tokenizers/bpe_test_support.h"
#include "pentatron/tokenizers/bpe_tokenizer.h"

namespace pentatron::tokenizers {
namespace {

using testing::PairList;
using testing::random_text;
using testing::repeat;
using testing::slow_train;

PairList merges_of(const BpeVocabulary& vocabulary) {
  PairList merges;
  for (std::size_t rank = 0; rank < vocabulary.num_merges(); ++rank) {
    merges.push_back(vocabulary.merge(rank));
  }
  return merges;
}

BpeVocabulary train(const std::vector<std::string>& texts, std::int64_t vocab_size,
                    std::int64_t min_frequency) {
  BpeTrainer trainer;
  for (const std::string& text : texts) trainer.add_text(text);
  return trainer.train({.vocab_size = vocab_size, .min_frequency = min_frequency});
}

// Merges that the `tokenizers` wheel 0.23.3 prints for these texts.
TEST(BpeTrainer, BreaksTiesAsTheReferenceLibrary) {
  EXPECT_EQ(train({"ab ba cd dc ef fe zz"}, 270, 0).merges_txt(),
            "#version: 0.2\na b\nb a\nc d\nd c\ne f\nf e\nz z\n"
            "\u0120 ba\n\u0120 cd\n\u0120 dc\n\u0120 ef\n\u0120 fe\n\u0120 zz\n");
  EXPECT_EQ(train({"aaaaaaa aaa aaaa"}, 265, 0).merges_txt(),
            "#version: 0.2\na a\naa aa\naa a\n\u0120 aaaa\n\u0120 aaa\naaaa aaa\n");
  EXPECT_EQ(train(std::vector<std::string>(5, "x<|endoftext|>y"), 400, 0).merges_txt(),
            "#version: 0.2\n< |\nd o\ne n\ne x\nf t\n| >\ndo ft\nen doft\nex t\nendoft ext\n");
  EXPECT_EQ(train({"zy yz az za"}, 262, 0).merges_txt(),
            "#version: 0.2\na z\ny z\nz a\nz y\n\u0120 az\n");
}

TEST(BpeTrainer, StopsWhereNoPairIsFrequentEnough) {
  EXPECT_EQ(train({"ab"}, 300, 2).size(), 257);
  EXPECT_EQ(train({"ab"}, 300, 1).size(), 258);
  EXPECT_EQ(train({"ab ab"}, 300, 2).size(), 258);
}

TEST(BpeTrainer, GivesIdsInOrder) {
  const BpeVocabulary vocabulary = train({"abab"}, 258, 0);
  EXPECT_EQ(vocabulary.eod(), 0);
  EXPECT_EQ(vocabulary.token(1), "!");
  EXPECT_EQ(vocabulary.token(256), "\xAD");
  EXPECT_EQ(vocabulary.token(257), "ab");
  EXPECT_TRUE(vocabulary.vocab_json().starts_with("{\"<|endoftext|>\":0,\"!\":1,\"\\\"\":2,"));
}

TEST(BpeTrainer, EqualsTheDefinitionOnRandomTexts) {
  std::mt19937 rng(17);
  for (int round = 0; round < 60; ++round) {
    std::vector<std::string> texts;
    for (int i = 0; i < 4; ++i) {
      if (round % 3 == 0) {
        texts.push_back(random_text(rng, 60, round % 2 == 0));
        continue;
      }
      std::string text;
      for (int word = 0; word < 12; ++word) {
        for (std::size_t k = rng() % 20; k > 0; --k) {
          text.push_back(static_cast<char>('a' + rng() % (1 + static_cast<unsigned>(round) % 4)));
        }
        text.push_back(' ');
      }
      texts.push_back(text);
    }
    const std::int64_t vocab_size = 258 + static_cast<std::int64_t>(rng() % 60);
    const std::int64_t min_frequency = round % 4;
    ASSERT_EQ(merges_of(train(texts, vocab_size, std::max<std::int64_t>(1, min_frequency))),
              slow_train(texts, vocab_size, min_frequency))
        << "round " << round;
  }
}

TEST(BpeTrainer, TakesOneHugeWord) {
  std::mt19937 rng(23);
  std::string word;
  for (int i = 0; i < 400'000; ++i) word.push_back(static_cast<char>('a' + rng() % 4));
  const BpeVocabulary vocabulary = train({word + repeat("x", 400'000)}, 1500, 2);
  EXPECT_EQ(vocabulary.size(), 1500);
  const BpeTokenizer tokenizer(vocabulary);
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(word)), word);
}

TEST(BpeTrainer, ReadsFilesByLineOrWhole) {
  const TempFolder folder("bpe_trainer");
  const std::filesystem::path first = folder.path() / "a.txt";
  const std::filesystem::path second = folder.path() / "b.txt";
  std::ofstream(first) << "x\n\n\ny\n\n\nz\n\n";
  std::ofstream(second) << "hello hello\nhello";
  const std::vector<std::filesystem::path> files{first, second};
  const BpeTrainOptions options{.vocab_size = 300, .min_frequency = 2};
  const auto by_line = train_bpe_from_files(files, options);
  EXPECT_EQ(by_line.merges_txt().find("\u010a \u010a"), std::string::npos);
  EXPECT_EQ(
      by_line.merges_txt(),
      train({"x\n", "\n", "\n", "y\n", "\n", "\n", "z\n", "\n", "hello hello\n", "hello"}, 300, 2)
          .merges_txt());
  const auto whole = train_bpe_from_files(files, options, TextUnit::kFile);
  EXPECT_NE(whole.merges_txt().find("\u010a \u010a"), std::string::npos);
  EXPECT_THROW(
      (void)train_bpe_from_files(std::vector<std::filesystem::path>{folder.path() / "c"}, options),
      Error);
}

TEST(BpeTrainer, ReportsProgressAndRefusesBadOptions) {
  std::vector<std::int64_t> seen;
  BpeTrainer trainer;
  std::mt19937 rng(29);
  std::string text;
  for (int i = 0; i < 40'000; ++i) text.push_back("abcdefgh "[rng() % 9]);
  trainer.add_text(text);
  (void)trainer.train({.vocab_size = 900,
                       .min_frequency = 1,
                       .progress = [&](std::int64_t done, std::int64_t total) {
                         EXPECT_EQ(total, 900);
                         seen.push_back(done);
                       }});
  EXPECT_EQ(seen, (std::vector<std::int64_t>{257 + 256, 257 + 512, 900}));
  EXPECT_THROW((void)trainer.train({.vocab_size = 256}), Error);
  EXPECT_THROW((void)trainer.train({.vocab_size = 1LL << 40}), Error);
  EXPECT_THROW((void)trainer.train({.vocab_size = 300, .min_frequency = -1}), Error);
  EXPECT_THROW((void)BpeTrainer().train({.vocab_size = 300}), Error);
}

// F6: one character again and again: what is written can be read.
TEST(BpeTrainer, F6_TokensStayWithinTheReadersLimit) {
  for (const std::string part : {"a", " ", "\xff"}) {
    BpeTrainer trainer;
    std::string text;
    while (text.size() < 200'000) text += part;
    trainer.add_text(text);
    const BpeVocabulary made = trainer.train({.vocab_size = 2000, .min_frequency = 1});
    std::size_t longest = 0;
    for (std::int32_t id = 0; id < made.size(); ++id) {
      longest = std::max(longest, made.token(id).size());
    }
    EXPECT_GE(longest, 30'000U);
    const BpeVocabulary read =
        BpeVocabulary::parse(made.vocab_json(), "vocab.json", made.merges_txt(), "merges.txt");
    EXPECT_EQ(read.identity_hash(), made.identity_hash());
  }
}

}  // namespace
}  // namespace pentatron::tokenizers
