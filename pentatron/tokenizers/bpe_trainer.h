// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "pentatron/tokenizers/bpe_vocabulary.h"
#include "pentatron/tokenizers/word_counts.h"

namespace pentatron::tokenizers {

struct BpeTrainOptions {
  std::int64_t vocab_size = 0;     // end-of-document token and 256 bytes included; at least 257
  std::int64_t min_frequency = 2;  // pairs seen less often are not merged
  // Called as merges are made, and once at the end: (tokens so far, vocab_size).
  std::function<void(std::int64_t, std::int64_t)> progress = {};
};

// What a training text is cut into before words are counted: words never cross a unit's end.
enum class TextUnit {
  kLine,  // one line with its line end, as the `tokenizers` library reads files
  kFile,  // the whole file: words such as "\n\n" can be learnt
};

// Trains a byte-level BPE. Ids: end-of-document 0, then the 256 bytes in order of their visible
// characters, then one id a merge. Each step merges the pair with the highest count over all words;
// equal counts go to the smaller left id, then to the smaller right id. The merges equal those of
// the `tokenizers` library (BpeTrainer with the byte-level alphabet, add_prefix_space off), but
// that no token grows beyond BpeVocabulary::kMaxTokenBytes visible bytes. With n bytes of distinct
// words: O(n log n) time whatever the length of the words.
class BpeTrainer final {
 public:
  // Counts the words of one unit of text (see PreTokenizer); special tokens in it are plain text.
  void add_text(std::string_view text);

  // Merges until the vocabulary is full or no pair reaches min_frequency (then the vocabulary stays
  // smaller). Throws kConfig for a bad option, kData if no text was added.
  [[nodiscard]] BpeVocabulary train(const BpeTrainOptions& options) const;

  // The words of another trainer, which has none afterwards.
  void absorb(BpeTrainer&& other) { words_.absorb(std::move(other.words_)); }

  [[nodiscard]] std::size_t num_distinct_words() const { return words_.counts().size(); }

 private:
  WordCounts words_;
};

// Trains on text files (mapped, not loaded). Throws kIo for one that cannot be read.
[[nodiscard]] BpeVocabulary train_bpe_from_files(std::span<const std::filesystem::path> files,
                                                 const BpeTrainOptions& options,
                                                 TextUnit unit = TextUnit::kLine);

}  // namespace pentatron::tokenizers
