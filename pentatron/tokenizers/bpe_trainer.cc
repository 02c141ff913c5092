// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/bpe_trainer.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <utility>
#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/tokenizers/byte_alphabet.h"
#include "pentatron/tokenizers/pre_tokenizer.h"

namespace pentatron::tokenizers {
namespace {

constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
constexpr std::int32_t kGone = -1;
constexpr std::int64_t kProgressInterval = 256;

struct Candidate {
  std::int64_t count;
  std::uint64_t pair;
  // Order of the heap: the highest count on top, then the smallest pair.
  bool operator<(const Candidate& other) const {
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

struct Pair {
  std::int64_t count = 0;
  bool grown = false;                    // since push_grown()
  std::vector<std::uint32_t> positions;  // of the left symbol; some may be stale
};

// All distinct words side by side as linked lists of symbols, with counts of neighbouring pairs
// kept up to date merge by merge.
class PairCounts final {
 public:
  // Begins with one symbol a byte.
  void add_word(std::string_view word, std::int64_t count,
                const std::array<std::int32_t, 256>& byte_ids) {
    const std::size_t begin = symbols_.size();
    PENTATRON_CHECK(word.size() < kNone - begin, kData,
                    "the distinct words of the training text have more than {} bytes: train on "
                    "less text",
                    kNone - 1);
    for (std::size_t i = 0; i < word.size(); ++i) {
      const auto at = static_cast<std::uint32_t>(begin + i);
      symbols_.push_back({.id = byte_ids[static_cast<std::uint8_t>(word[i])],
                          .previous = i > 0 ? at - 1 : kNone,
                          .next = i + 1 < word.size() ? at + 1 : kNone,
                          .word = static_cast<std::uint32_t>(word_counts_.size())});
    }
    for (std::size_t at = begin; at + 1 < symbols_.size(); ++at) {
      change(symbols_[at].id, symbols_[at + 1].id, count, static_cast<std::uint32_t>(at));
    }
    word_counts_.push_back(count);
  }

  // Puts pairs whose count has grown on the heap. Counts that fell are found out when they come up.
  void push_grown() {
    for (const std::uint64_t key : grown_) {
      Pair& pair = pairs_[key];
      pair.grown = false;
      if (pair.count > 0) heap_.push({pair.count, key});
    }
    grown_.clear();
  }

  // The best pair with its true count; false if no pair is left.
  bool pop_best(Candidate& best) {
    while (!heap_.empty()) {
      best = heap_.top();
      heap_.pop();
      const auto found = pairs_.find(best.pair);
      const std::int64_t count = found != pairs_.end() ? found->second.count : 0;
      if (count == best.count) return true;
      // A fallen count goes back in its place. A grown one has been pushed again already.
      if (count > 0 && count < best.count) heap_.push({count, best.pair});
    }
    return false;
  }

  // Replaces every occurrence of the pair by `product`, from left to right.
  void merge(std::uint64_t key, std::int32_t product) {
    Pair pair = std::exchange(pairs_[key], Pair());
    const auto left_id = static_cast<std::int32_t>(key >> 32);
    const auto right_id = static_cast<std::int32_t>(key & 0xFFFFFFFF);
    std::sort(pair.positions.begin(), pair.positions.end());
    for (const std::uint32_t at : pair.positions) {
      Symbol& left = symbols_[at];
      if (left.id != left_id || left.next == kNone || symbols_[left.next].id != right_id) continue;
      Symbol& right = symbols_[left.next];
      const std::int64_t count = word_counts_[left.word];
      if (left.previous != kNone) {
        const std::int32_t before = symbols_[left.previous].id;
        change(before, left_id, -count, kNone);
        change(before, product, count, left.previous);
      }
      if (right.next != kNone) {
        const std::int32_t after = symbols_[right.next].id;
        change(right_id, after, -count, kNone);
        change(product, after, count, at);
        symbols_[right.next].previous = at;
      }
      left.id = product;
      left.next = right.next;
      right.id = kGone;
    }
    // Overlapping occurrences ("aaa") have left a rest behind; none can be merged any more.
    pairs_.erase(key);
  }

 private:
  struct Symbol {
    std::int32_t id;
    std::uint32_t previous;
    std::uint32_t next;
    std::uint32_t word;
  };

  void change(std::int32_t left, std::int32_t right, std::int64_t amount, std::uint32_t position) {
    const std::uint64_t key = MergeTable::pair_key(left, right);
    Pair& pair = pairs_[key];
    pair.count += amount;
    if (amount > 0) {
      pair.positions.push_back(position);
      if (!std::exchange(pair.grown, true)) grown_.push_back(key);
    }
  }

  std::vector<Symbol> symbols_;
  std::vector<std::int64_t> word_counts_;
  std::unordered_map<std::uint64_t, Pair> pairs_;
  std::vector<std::uint64_t> grown_;
  std::priority_queue<Candidate> heap_;
};

// Over what the reader of vocab.json takes.
bool is_too_long(const std::string& token) {
  return 2 * token.size() > BpeVocabulary::kMaxTokenBytes &&
         bytes_to_visible(token).size() > BpeVocabulary::kMaxTokenBytes;
}

}  // namespace

void BpeTrainer::add_text(std::string_view text) {
  PreTokenizer words(text);
  for (std::string_view word; words.next(word);) {
    const auto found = words_.find(word);
    if (found != words_.end()) {
      ++found->second;
    } else {
      words_.emplace(std::string(word), 1);
    }
  }
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
  for (const auto& [word, count] : words_) counts.add_word(word, count, byte_ids);
  std::vector<std::pair<std::int32_t, std::int32_t>> merges;
  Candidate best{};
  while (std::ssize(tokens) < options.vocab_size) {
    counts.push_grown();
    if (!counts.pop_best(best) || best.count < options.min_frequency) break;
    const auto left = static_cast<std::int32_t>(best.pair >> 32);
    const auto right = static_cast<std::int32_t>(best.pair & 0xFFFFFFFF);
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
