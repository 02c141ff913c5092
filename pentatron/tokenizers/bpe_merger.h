// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "pentatron/tokenizers/merge_table.h"

namespace pentatron::tokenizers {

// Work done by an encoder: what the linear-time tests bound (time itself is no test).
struct BpeWork {
  std::uint64_t words = 0;
  std::uint64_t cache_hits = 0;
  std::uint64_t pair_lookups = 0;
  std::uint64_t scan_steps = 0;    // pairs compared in short words
  std::uint64_t queue_pushes = 0;  // long words
  std::uint64_t queue_pops = 0;
};

// Applies merges to one word: always the merge of lowest rank, the leftmost one first.
// Short words scan for it (at most kShortWord steps a symbol); long ones keep a queue, so that n
// symbols cost at most 3 n queue entries, O(n log n) in the worst case and O(n) for runs.
class BpeMerger final {
 public:
  static constexpr std::size_t kShortWord = 64;

  // `merges` must outlive the object.
  explicit BpeMerger(const MergeTable& merges) : merges_(merges) {}

  // `symbols`: one id a byte (or character) in, the word's tokens out. Throws kData for 2^32 - 1
  // bytes or more.
  void merge(std::vector<std::int32_t>& symbols, BpeWork& work) const;

 private:
  void merge_short(std::vector<std::int32_t>& symbols, BpeWork& work) const;
  void merge_long(std::vector<std::int32_t>& symbols, BpeWork& work) const;

  const MergeTable& merges_;
};

}  // namespace pentatron::tokenizers
