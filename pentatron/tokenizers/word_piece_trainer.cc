// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/word_piece_trainer.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "pentatron/base/error.h"
#include "pentatron/tokenizers/bpe_vocabulary.h"
#include "pentatron/tokenizers/pair_counts.h"
#include "pentatron/tokenizers/tokenizer.h"

namespace pentatron::tokenizers {
namespace {

constexpr std::string_view kPrefix = "##";
constexpr std::int64_t kProgressInterval = 256;

// Bytes of the character that begins at `at`, or 1 where there is none.
std::size_t character_size(std::string_view text, std::size_t at) {
  const auto lead = static_cast<std::uint8_t>(text[at]);
  std::size_t size = 1;
  if (lead >= 0xF0) {
    size = 4;
  } else if (lead >= 0xE0) {
    size = 3;
  } else if (lead >= 0xC0) {
    size = 2;
  }
  return std::min(size, text.size() - at);
}

class Vocabulary final {
 public:
  // The id of a token, which is put at the end if it is new.
  std::int32_t id_of(std::string token) {
    const auto [found, fresh] = ids_.emplace(token, static_cast<std::int32_t>(tokens_.size()));
    if (fresh) tokens_.push_back(std::move(token));
    return found->second;
  }
  [[nodiscard]] const std::string& token(std::int32_t id) const {
    return tokens_[static_cast<std::size_t>(id)];
  }
  [[nodiscard]] std::int64_t size() const { return std::ssize(tokens_); }
  [[nodiscard]] std::vector<std::string> take() { return std::move(tokens_); }

 private:
  std::vector<std::string> tokens_;
  std::unordered_map<std::string, std::int32_t> ids_;
};

// Special tokens, characters, and characters that go on with a word. The order of UTF-8's bytes is
// that of the code points.
Vocabulary first_tokens(const WordCounts& words) {
  std::set<std::string> characters;
  std::set<std::string> further;
  for (const auto& [word, count] : words.counts()) {
    for (std::size_t at = 0; at < word.size();) {
      const std::size_t size = character_size(word, at);
      const std::string character = word.substr(at, size);
      characters.insert(character);
      if (at > 0) further.insert(std::string(kPrefix) + character);
      at += size;
    }
  }
  Vocabulary vocabulary;
  for (const char* special : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}) {
    (void)vocabulary.id_of(special);
  }
  for (const std::string& token : characters) (void)vocabulary.id_of(token);
  for (const std::string& token : further) (void)vocabulary.id_of(token);
  return vocabulary;
}

}  // namespace

WordPieceTrainer::WordPieceTrainer(bool lower_case)
    : normalizer_(make_bert_normalizer({.strip_accents = lower_case, .lowercase = lower_case})),
      splitter_(make_bert_word_splitter()) {}

void WordPieceTrainer::add_text(std::string_view text) {
  std::vector<Word> words;
  splitter_->split({.text = normalizer_->apply(replace_invalid_utf8(text)), .at_start = true},
                   words);
  for (const Word& word : words) words_.add(word.text);
}

std::vector<std::string> WordPieceTrainer::train(const WordPieceTrainOptions& options) const {
  PENTATRON_CHECK(options.vocab_size >= 1 && options.vocab_size <= BpeVocabulary::kMaxTokens,
                  kConfig, "--vocab-size of a WordPiece vocabulary must be 1 to {}, got {}",
                  BpeVocabulary::kMaxTokens, options.vocab_size);
  PENTATRON_CHECK(options.min_frequency >= 0, kConfig, "--min-frequency must be at least 0, got {}",
                  options.min_frequency);
  PENTATRON_CHECK(!words_.empty(), kData, "there is no text to train a tokenizer on");
  Vocabulary vocabulary = first_tokens(words_);
  PENTATRON_CHECK(vocabulary.size() <= options.vocab_size, kConfig,
                  "--vocab-size {}: the text's characters and the special tokens are {} tokens",
                  options.vocab_size, vocabulary.size());
  PairCounts counts;
  std::vector<std::int32_t> ids;
  for (const auto& [word, count] : words_.counts()) {
    ids.clear();
    for (std::size_t at = 0; at < word.size();) {
      const std::size_t size = character_size(word, at);
      ids.push_back(vocabulary.id_of(std::string(at > 0 ? kPrefix : "") + word.substr(at, size)));
      at += size;
    }
    counts.add_word(ids, count);
  }
  Candidate best;
  for (std::int64_t merges = 0; vocabulary.size() < options.vocab_size; ++merges) {
    counts.push_grown();
    if (!counts.pop_best(best) || best.count < options.min_frequency) break;
    std::string joined =
        vocabulary.token(best.left()) + vocabulary.token(best.right()).substr(kPrefix.size());
    // Over what the reader of vocab.txt takes: this pair stays apart.
    if (joined.size() > BpeVocabulary::kMaxTokenBytes) continue;
    counts.merge(best.pair, vocabulary.id_of(std::move(joined)));
    if (options.progress && merges % kProgressInterval == 0) {
      options.progress(vocabulary.size(), options.vocab_size);
    }
  }
  if (options.progress) options.progress(vocabulary.size(), options.vocab_size);
  return vocabulary.take();
}

}  // namespace pentatron::tokenizers
