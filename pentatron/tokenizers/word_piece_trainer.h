// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pentatron/tokenizers/normalizer.h"
#include "pentatron/tokenizers/word_counts.h"
#include "pentatron/tokenizers/word_splitter.h"

namespace pentatron::tokenizers {

struct WordPieceTrainOptions {
  std::int64_t vocab_size = 0;     // special tokens and characters included
  std::int64_t min_frequency = 2;  // pairs seen less often are not merged
  // Called as merges are made, and once at the end: (tokens so far, vocab_size).
  std::function<void(std::int64_t, std::int64_t)> progress = {};
};

// Trains a vocabulary of BERT. Words are those of its tokenizer (text cleaned, lower case without
// accents if wanted, cut at white space and punctuation). Tokens: [PAD], [UNK], [CLS], [SEP],
// [MASK], all characters by code point, all that go on with a word ("##x") likewise; then merges of
// the most frequent pair, "a" and "##b" to "ab", equal counts as BpeTrainer breaks them. So does
// the `tokenizers` library (WordPieceTrainer), whose "##" characters come in no order: where counts
// are not equal the tokens are the same.
class WordPieceTrainer final {
 public:
  explicit WordPieceTrainer(bool lower_case);

  // Counts the words of a text.
  void add_text(std::string_view text);
  // The words of another trainer of the same kind, which has none afterwards.
  void absorb(WordPieceTrainer&& other) { words_.absorb(std::move(other.words_)); }

  // Tokens by id: the lines of a vocab.txt. Throws kConfig for a bad option or a vocabulary that
  // has no room for the characters, kData if no text was added.
  [[nodiscard]] std::vector<std::string> train(const WordPieceTrainOptions& options) const;

 private:
  NormalizerPtr normalizer_;
  WordSplitterPtr splitter_;
  WordCounts words_;
};

}  // namespace pentatron::tokenizers
