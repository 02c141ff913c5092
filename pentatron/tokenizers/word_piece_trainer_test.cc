// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/word_piece_trainer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/base/temp_folder.h"
#include "pentatron/base/test_support.h"
#include "pentatron/tokenizers/sentence_piece_test_support.h"
#include "pentatron/tokenizers/sentence_piece_tokenizer.h"
#include "pentatron/tokenizers/unigram_trainer.h"

namespace pentatron::tokenizers {
namespace {

// By hand: "abc" 4 times, "abd" twice. a+##b (6), then ab+##c (4), then ab+##d (2).
TEST(WordPieceTrainer, MergesByHand) {
  WordPieceTrainer trainer(true);
  trainer.add_text("ABC abc, ábc abc\n");
  trainer.add_text("abd abd");
  const std::vector<std::string> all = trainer.train({.vocab_size = 100, .min_frequency = 2});
  EXPECT_EQ(all,
            (std::vector<std::string>{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ",", "a", "b",
                                      "c", "d", "##b", "##c", "##d", "ab", "abc", "abd"}));
  const std::vector<std::string> frequent = trainer.train({.vocab_size = 100, .min_frequency = 3});
  EXPECT_EQ(frequent.back(), "abc");
  EXPECT_EQ(trainer.train({.vocab_size = 14, .min_frequency = 2}).back(), "ab");
  WordPieceTrainer cased(false);
  cased.add_text("ABC");
  EXPECT_TRUE(std::ranges::count(cased.train({.vocab_size = 100}), "A") == 1);
}

TEST(WordPieceTrainer, CountsOfSeveralTrainersAreOne) {
  std::mt19937 engine(1);
  std::vector<std::string> lines;
  for (int i = 0; i < 300; ++i) {
    std::string line;
    for (int w = 0; w < 6; ++w) {
      for (unsigned c = 0; c < 1 + engine() % 6; ++c) line += static_cast<char>('a' + engine() % 5);
      line += ' ';
    }
    lines.push_back(line);
  }
  WordPieceTrainer one(true);
  std::vector<WordPieceTrainer> parts;
  for (int i = 0; i < 3; ++i) parts.emplace_back(true);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    one.add_text(lines[i]);
    parts[i % 3].add_text(lines[i]);
  }
  for (std::size_t i = 1; i < 3; ++i) parts[0].absorb(std::move(parts[i]));
  EXPECT_EQ(one.train({.vocab_size = 80}), parts[0].train({.vocab_size = 80}));
}

TEST(WordPieceTrainer, RefusesBadOptions) {
  const WordPieceTrainer empty(true);
  expect_error(ErrorKind::kData, "no text", [&] { (void)empty.train({.vocab_size = 100}); });
  WordPieceTrainer trainer(true);
  trainer.add_text("some text, \xFF and \xC3");
  expect_error(ErrorKind::kConfig, "--vocab-size 6: the text's characters",
               [&] { (void)trainer.train({.vocab_size = 6}); });
  expect_error(ErrorKind::kConfig, "--vocab-size", [&] { (void)trainer.train({.vocab_size = 0}); });
  expect_error(ErrorKind::kConfig, "--min-frequency",
               [&] { (void)trainer.train({.vocab_size = 100, .min_frequency = -1}); });
}

std::string trained(const std::vector<std::string>& lines, const UnigramTrainOptions& options) {
  std::size_t at = 0;
  return train_unigram(
      [&](std::string_view& line) {
        if (at == lines.size()) return false;
        line = lines[at++];
        return true;
      },
      options);
}

TEST(UnigramTrainer, MakesAModelThatFindsTheWords) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "a build with sanitisers has no SentencePiece";
#endif
  const auto [words, lines] = testing::made_up_text();
  const std::string model = trained(lines, {.vocab_size = 300});
  EXPECT_EQ(model, trained(lines, {.vocab_size = 300}));
  const TempFolder folder;
  write_file_atomically(folder.path() / "tokenizer.model", model);
  const SentencePieceTokenizer tokenizer(folder.path() / "tokenizer.model");
  EXPECT_EQ(tokenizer.vocab_size(), 300);
  // A word that is frequent is one piece.
  EXPECT_EQ(tokenizer.encode(words[0] + " " + words[1] + " " + words[2]).size(), 3U);
  // Characters that are rare become bytes.
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("abc \xE2\x82\xAC")), "abc \xE2\x82\xAC");
}

TEST(UnigramTrainer, SaysWhatIsWrong) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "a build with sanitisers has no SentencePiece";
#endif
  const std::vector<std::string> lines(50, "the same words again");
  expect_error(ErrorKind::kData, "5000 tokens",
               [&] { (void)trained(lines, {.vocab_size = 5000}); });
  expect_error(ErrorKind::kData, "no text", [&] { (void)trained({}, {.vocab_size = 300}); });
  expect_error(ErrorKind::kConfig, "--character-coverage",
               [&] { (void)trained(lines, {.vocab_size = 300, .character_coverage = 0.5}); });
  EXPECT_THROW((void)train_unigram(
                   [](std::string_view&) -> bool { throw Error(ErrorKind::kIo, "a bad disk"); },
                   {.vocab_size = 300}),
               Error);
}

}  // namespace
}  // namespace pentatron::tokenizers
