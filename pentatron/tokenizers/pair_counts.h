// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <queue>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/tokenizers/merge_table.h"

namespace pentatron::tokenizers {

// A pair of neighbours that may be merged.
struct Candidate {
  [[nodiscard]] std::int32_t left() const { return static_cast<std::int32_t>(pair >> 32); }
  [[nodiscard]] std::int32_t right() const { return static_cast<std::int32_t>(pair & 0xFFFFFFFF); }

  std::int64_t count = 0;
  std::uint64_t pair = 0;
  // Order of the heap: the highest count on top, then the smallest pair.
  bool operator<(const Candidate& other) const {
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

// What trainers that merge pairs share: all distinct words side by side as linked lists of symbols,
// with counts of neighbouring pairs kept up to date merge by merge.
class PairCounts final {
 public:
  // A word of these symbols. kData when all words together have too many.
  void add_word(std::span<const std::int32_t> ids, std::int64_t count) {
    const std::size_t begin = symbols_.size();
    PENTATRON_CHECK(ids.size() < kNone - begin, kData,
                    "the distinct words of the training text have more than {} symbols: train on "
                    "less text",
                    kNone - 1);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const auto at = static_cast<std::uint32_t>(begin + i);
      symbols_.push_back({.id = ids[i],
                          .previous = i > 0 ? at - 1 : kNone,
                          .next = i + 1 < ids.size() ? at + 1 : kNone,
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
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
  static constexpr std::int32_t kGone = -1;

  struct Pair {
    std::int64_t count = 0;
    bool grown = false;                    // since push_grown()
    std::vector<std::uint32_t> positions;  // of the left symbol; some may be stale
  };
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

}  // namespace pentatron::tokenizers
