// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace pentatron::tokenizers {

// The merges of a BPE vocabulary: (left id, right id) to rank and product, in expected O(1).
class MergeTable final {
 public:
  struct Merge {
    std::uint64_t pair;  // pair_key(left, right)
    std::uint32_t rank;  // the lowest is applied first; of equal ones the leftmost
    std::int32_t product;
  };

  // Room for `count` merges; drops what was there.
  void reserve(std::size_t count) {
    const std::size_t slots = std::bit_ceil(count < 8 ? std::size_t{16} : 2 * count);
    slots_.assign(slots, Merge{kEmpty, 0, -1});
    mask_ = slots - 1;
    shift_ = 64 - std::countr_zero(slots);
  }
  // False, changing nothing, when the pair is there already. At most as many as reserved.
  bool add(const Merge& merge) {
    std::size_t slot = slot_of(merge.pair);
    for (; slots_[slot].pair != kEmpty; slot = (slot + 1) & mask_) {
      if (slots_[slot].pair == merge.pair) return false;
    }
    slots_[slot] = merge;
    return true;
  }
  // nullptr if the two do not merge. After reserve().
  [[nodiscard]] const Merge* find(std::int32_t left, std::int32_t right) const {
    const std::uint64_t key = pair_key(left, right);
    for (std::size_t slot = slot_of(key);; slot = (slot + 1) & mask_) {
      const Merge& merge = slots_[slot];
      if (merge.pair == key) return &merge;
      if (merge.pair == kEmpty) return nullptr;
    }
  }

  // visit(merge) for each, in no order.
  template <typename Visit>
  void for_each(Visit&& visit) const {
    for (const Merge& merge : slots_) {
      if (merge.pair != kEmpty) visit(merge);
    }
  }

  [[nodiscard]] static std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
    return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32) |
           static_cast<std::uint32_t>(right);
  }

 private:
  static constexpr std::uint64_t kEmpty = ~0ULL;
  [[nodiscard]] std::size_t slot_of(std::uint64_t key) const {
    return static_cast<std::size_t>((key * 0x9E3779B97F4A7C15ULL) >> shift_);
  }

  std::vector<Merge> slots_;  // open addressing, at most half full
  std::size_t mask_ = 0;
  int shift_ = 0;
};

}  // namespace pentatron::tokenizers
