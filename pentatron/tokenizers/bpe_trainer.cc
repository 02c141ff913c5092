// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/bpe_trainer.h"

#include <array>
#include <unordered_map>
#include <utility>
#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/tokenizers/byte_alphabet.h"
#include "pentatron/tokenizers/pair_counts.h"
#include "pentatron/tokenizers/pre_tokenizer.h"

namespace pentatron::tokenizers {
namespace {

constexpr std::int64_t kProgressInterval = 256;

// Over what the reader of vocab.json takes.
bool is_too_long(const std::string& token) {
  return 2 * token.size() > BpeVocabulary::kMaxTokenBytes &&
         bytes_to_visible(token).size() > BpeVocabulary::kMaxTokenBytes;
}

}  // namespace

void BpeTrainer::add_text(std::string_view text) {
  PreTokenizer words(text);
  for (std::string_view word; words.next(word);) words_.add(word);
}

BpeVocabulary BpeTrainer::train(const BpeTrainOptions& options) const {
  constexpr std::int64_t kSmallest = 257;
  PENTATRON_CHECK(
      options.vocab_size >= kSmallest && options.vocab_size <= BpeVocabulary::kMaxTokens, kConfig,
      "--vocab-size of a byte-level BPE must be {} (256 bytes and '{}') to {}, got {}", kSmallest,
      kEndOfText, BpeVocabulary::kMaxTokens, options.vocab_size);
  PENTATRON_CHECK(options.min_frequency >= 0, kConfig, "--min-frequency must be at least 0, got {}",
                  options.min_frequency);
  PENTATRON_CHECK(!words_.empty(), kData, "there is no text to train a tokenizer on");

  std::vector<std::string> tokens{std::string(kEndOfText)};
  std::array<std::int32_t, 256> byte_ids{};
  for (const std::uint8_t byte : alphabet_bytes()) {
    byte_ids[byte] = static_cast<std::int32_t>(tokens.size());
    tokens.emplace_back(1, static_cast<char>(byte));
  }
  std::unordered_map<std::string, std::int32_t> index;
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    index.emplace(tokens[id], static_cast<std::int32_t>(id));
  }

  PairCounts counts;
  std::vector<std::int32_t> ids;
  for (const auto& [word, count] : words_.counts()) {
    ids.clear();
    for (const char byte : word) ids.push_back(byte_ids[static_cast<std::uint8_t>(byte)]);
    counts.add_word(ids, count);
  }
  std::vector<std::pair<std::int32_t, std::int32_t>> merges;
  Candidate best;
  while (std::ssize(tokens) < options.vocab_size) {
    counts.push_grown();
    if (!counts.pop_best(best) || best.count < options.min_frequency) break;
    const std::int32_t left = best.left();
    const std::int32_t right = best.right();
    std::string joined =
        tokens[static_cast<std::size_t>(left)] + tokens[static_cast<std::size_t>(right)];
    if (is_too_long(joined)) continue;  // this pair stays apart
    // Two ways to make the same token share its id.
    const auto [product, fresh] = index.emplace(joined, static_cast<std::int32_t>(tokens.size()));
    if (fresh) tokens.push_back(std::move(joined));
    merges.emplace_back(left, right);
    counts.merge(best.pair, product->second);
    if (options.progress && std::ssize(merges) % kProgressInterval == 0) {
      options.progress(std::ssize(tokens), options.vocab_size);
    }
  }
  if (options.progress) options.progress(std::ssize(tokens), options.vocab_size);
  return BpeVocabulary::from_parts(std::move(tokens), merges);
}

BpeVocabulary train_bpe_from_files(std::span<const std::filesystem::path> files,
                                   const BpeTrainOptions& options, TextUnit unit) {
  BpeTrainer trainer;
  for (const std::filesystem::path& path : files) {
    const MappedFile file(path);
    std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
    while (!text.empty()) {
      const std::size_t newline =
          unit == TextUnit::kLine ? text.find('\n') : std::string_view::npos;
      const std::size_t size = newline == std::string_view::npos ? text.size() : newline + 1;
      trainer.add_text(text.substr(0, size));
      text.remove_prefix(size);
    }
  }
  return trainer.train(options);
}

}  // namespace pentatron::tokenizers
