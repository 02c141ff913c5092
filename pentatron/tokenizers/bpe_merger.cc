// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/bpe_merger.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <queue>
#include <unordered_map>
#include <utility>

#include "pentatron/base/error.h"

namespace pentatron::tokenizers {
namespace {

constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
constexpr std::int32_t kGone = -1;

// Positions in order of (rank, position). Entries of one rank share a bucket, which is sorted once
// when its turn comes; in a well-ordered vocabulary nothing enters a bucket after that, so a run of
// one character costs no heap at all. Entries that do come later wait in the bucket's small heap.
class MergeQueue final {
 public:
  void push(std::uint32_t rank, std::uint32_t position) {
    // Neighbouring positions of a run have the same rank.
    if (buckets_.empty() || rank != last_rank_) {
      const auto next_index = static_cast<std::uint32_t>(buckets_.size());
      const auto [at, fresh] = bucket_of_rank_.try_emplace(rank, next_index);
      if (fresh) buckets_.emplace_back();
      last_rank_ = rank;
      last_bucket_ = at->second;
    }
    Bucket& bucket = buckets_[last_bucket_];
    if (!std::exchange(bucket.active, true)) {
      active_.push((static_cast<std::uint64_t>(rank) << 32) | last_bucket_);
    }
    if (bucket.sorted) {
      bucket.late.push_back(position);
      std::push_heap(bucket.late.begin(), bucket.late.end(), std::greater<>());
    } else {
      bucket.positions.push_back(position);
    }
  }

  bool pop(std::uint32_t& rank, std::uint32_t& position) {
    while (!active_.empty()) {
      rank = static_cast<std::uint32_t>(active_.top() >> 32);
      Bucket& bucket = buckets_[active_.top() & 0xFFFFFFFF];
      if (!bucket.sorted) {
        if (!std::is_sorted(bucket.positions.begin(), bucket.positions.end())) {
          std::sort(bucket.positions.begin(), bucket.positions.end());
        }
        bucket.sorted = true;
      }
      const bool has_next = bucket.cursor < bucket.positions.size();
      if (!bucket.late.empty() &&
          (!has_next || bucket.late.front() < bucket.positions[bucket.cursor])) {
        position = bucket.late.front();
        std::pop_heap(bucket.late.begin(), bucket.late.end(), std::greater<>());
        bucket.late.pop_back();
        return true;
      }
      if (has_next) {
        position = bucket.positions[bucket.cursor++];
        return true;
      }
      bucket = Bucket();
      active_.pop();
    }
    return false;
  }

 private:
  struct Bucket {
    std::vector<std::uint32_t> positions;
    std::vector<std::uint32_t> late;
    std::size_t cursor = 0;
    bool sorted = false;
    bool active = false;
  };
  std::unordered_map<std::uint32_t, std::uint32_t> bucket_of_rank_;
  std::vector<Bucket> buckets_;
  std::uint32_t last_rank_ = 0;
  std::uint32_t last_bucket_ = 0;
  std::priority_queue<std::uint64_t, std::vector<std::uint64_t>, std::greater<>> active_;
};

}  // namespace

void BpeMerger::merge(std::vector<std::int32_t>& symbols, BpeWork& work) const {
  if (symbols.size() < 2) return;
  if (symbols.size() <= kShortWord) {
    merge_short(symbols, work);
  } else {
    merge_long(symbols, work);
  }
}

void BpeMerger::merge_short(std::vector<std::int32_t>& symbols, BpeWork& work) const {
  std::size_t count = symbols.size();
  std::array<const MergeTable::Merge*, kShortWord> merges{};  // of symbols i and i + 1
  for (std::size_t i = 0; i + 1 < count; ++i) {
    merges[i] = merges_.find(symbols[i], symbols[i + 1]);
  }
  work.pair_lookups += count - 1;
  while (count > 1) {
    std::size_t best = count;
    for (std::size_t i = 0; i + 1 < count; ++i) {
      if (merges[i] != nullptr && (best == count || merges[i]->rank < merges[best]->rank)) best = i;
    }
    work.scan_steps += count;
    if (best == count) break;
    symbols[best] = merges[best]->product;
    for (std::size_t i = best + 1; i + 1 < count; ++i) {
      symbols[i] = symbols[i + 1];
      merges[i] = merges[i + 1];
    }
    --count;
    const auto look_up = [&](std::size_t i) {
      merges[i] = merges_.find(symbols[i], symbols[i + 1]);
      ++work.pair_lookups;
    };
    if (best > 0) look_up(best - 1);
    if (best + 1 < count) look_up(best);
  }
  symbols.resize(count);
}

void BpeMerger::merge_long(std::vector<std::int32_t>& symbols, BpeWork& work) const {
  PENTATRON_CHECK(symbols.size() < kNone, kData,
                  "a word of {} bytes without a break is too long to encode (limit {})",
                  symbols.size(), kNone - 1);
  const auto count = static_cast<std::uint32_t>(symbols.size());
  std::vector<std::uint32_t> next(count);
  std::vector<std::uint32_t> previous(count);
  MergeQueue queue;
  const auto offer = [&](std::uint32_t left) {
    const std::uint32_t right = next[left];
    if (right == kNone) return;
    ++work.pair_lookups;
    const auto* merge = merges_.find(symbols[left], symbols[right]);
    if (merge == nullptr) return;
    ++work.queue_pushes;
    queue.push(merge->rank, left);
  };
  for (std::uint32_t i = 0; i < count; ++i) {
    next[i] = i + 1 < count ? i + 1 : kNone;
    previous[i] = i > 0 ? i - 1 : kNone;
  }
  for (std::uint32_t i = 0; i < count; ++i) offer(i);

  std::uint32_t rank = 0;
  std::uint32_t left = 0;
  while (queue.pop(rank, left)) {
    ++work.queue_pops;
    // An entry is stale if a neighbour has been merged away since.
    const std::uint32_t right = next[left];
    if (symbols[left] == kGone || right == kNone) continue;
    ++work.pair_lookups;
    const auto* merge = merges_.find(symbols[left], symbols[right]);
    if (merge == nullptr || merge->rank != rank) continue;
    symbols[left] = merge->product;
    symbols[right] = kGone;
    next[left] = next[right];
    if (next[left] != kNone) previous[next[left]] = left;
    if (previous[left] != kNone) offer(previous[left]);
    offer(left);
  }
  std::erase(symbols, kGone);
}

}  // namespace pentatron::tokenizers
