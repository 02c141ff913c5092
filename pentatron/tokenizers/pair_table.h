// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "pentatron/tokenizers/merge_table.h"

namespace pentatron::tokenizers {

// The merges of a byte-level vocabulary in little memory, for short words: eight bytes a slot, and
// a plain array for pairs of bytes. Merges that no text can reach are left out: while a word is
// merged, two neighbours that spell a token are the two that merging the token's own bytes ends
// with, so of all pairs with one product only that one can come up. (Vocabularies of ranks, and
// lists made from them, name every way to cut a token: three times as many.)
class PairTable final {
 public:
  static constexpr std::uint32_t kNone = (1U << 23) - 1;
  static constexpr std::size_t kMaxTokens = 1 << 20;

  // `tokens`: bytes by id, products of `merges` are their pairs' bytes. `byte_ids`: of all bytes.
  PairTable(std::span<const std::string> tokens, const std::array<std::int32_t, 256>& byte_ids,
            const MergeTable& merges);

  // False for a vocabulary that is too large: no merges are held then.
  [[nodiscard]] bool fits() const { return !slots_.empty(); }

  // Tokens that merging their own bytes gives.
  [[nodiscard]] const std::vector<std::int32_t>& reached() const { return reached_; }

  // A number that orders the merges as their ranks do, or kNone. Of two tokens, of two bytes.
  [[nodiscard]] std::uint32_t find(std::int32_t left, std::int32_t right) const {
    const std::uint64_t key = pair_of(left, right);
    const std::uint64_t hash = key * kMultiplier;
    // Most pairs do not merge, and this answers nine of ten of those from memory that stays near.
    const std::uint64_t bit = hash >> filter_shift_;
    if ((filter_[bit >> 6] >> (bit & 63) & 1) == 0) return kNone;
    for (std::size_t slot = hash >> shift_;; slot = (slot + 1) & mask_) {
      if (slots_[slot] >> kRankBits == key) return slots_[slot] & kNone;
      if (slots_[slot] == kEmpty) return kNone;
    }
  }
  [[nodiscard]] std::uint32_t of_bytes(std::uint8_t left, std::uint8_t right) const {
    return byte_pairs_[(static_cast<std::size_t>(left) << 8) | right];
  }
  [[nodiscard]] std::int32_t product(std::uint32_t rank) const {
    return products_.empty() ? static_cast<std::int32_t>(rank) : products_[rank];
  }

  // The id of a token that merging its own bytes does not give (all tokens of a vocabulary that is
  // too large, and those of more than 64 bytes, count as such); -1 for other words. Always
  // callable.
  [[nodiscard]] std::int32_t find_unreached(std::string_view word) const {
    if (word.size() > longest_unreached_) return -1;
    const auto found = unreached_.find(word);
    return found == unreached_.end() ? -1 : found->second;
  }

 private:
  void add_unreached(const std::string& token, std::size_t id);
  void add_byte_pairs(const std::array<std::int32_t, 256>& byte_ids, std::size_t num_tokens,
                      std::span<const MergeTable::Merge> merges);

  static constexpr int kRankBits = 24;
  static constexpr std::uint64_t kEmpty = ~0ULL;
  static constexpr std::uint64_t kMultiplier = 0x9E3779B97F4A7C15ULL;

  [[nodiscard]] static std::uint64_t pair_of(std::int32_t left, std::int32_t right) {
    return (static_cast<std::uint64_t>(left) << 20) | static_cast<std::uint64_t>(right);
  }

  std::vector<std::uint64_t> slots_;  // pair, rank; open addressing, at most four fifths full
  std::size_t mask_ = 0;
  int shift_ = 0;
  std::vector<std::uint64_t> filter_;  // a bit for each hash, eight or more bits a pair
  int filter_shift_ = 0;
  std::vector<std::uint32_t> byte_pairs_;
  std::vector<std::int32_t> products_;  // by rank; empty where products rise with the ranks: then
                                        // the products are the ranks
  std::vector<std::int32_t> reached_;
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>()(text);
    }
  };
  std::unordered_map<std::string, std::int32_t, Hash, std::equal_to<>> unreached_;
  std::size_t longest_unreached_ = 0;
};

}  // namespace pentatron::tokenizers
