// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/pair_table.h"

#include <algorithm>
#include <bit>

namespace pentatron::tokenizers {
namespace {

// Longer tokens are not merged here: all their merges stay.
constexpr std::size_t kMaxMergedToken = 64;
constexpr std::uint64_t kNoPair = ~0ULL;

// Merges the symbols, the lowest rank first; the pair that the last merge joined, or kNoPair.
std::uint64_t merge_all(const MergeTable& merges, std::vector<std::int32_t>& symbols,
                        std::vector<const MergeTable::Merge*>& found) {
  std::uint64_t last = kNoPair;
  found.assign(symbols.size(), nullptr);
  for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
    found[i] = merges.find(symbols[i], symbols[i + 1]);
  }
  while (symbols.size() > 1) {
    std::size_t best = symbols.size();
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      if (found[i] != nullptr && (best == symbols.size() || found[i]->rank < found[best]->rank)) {
        best = i;
      }
    }
    if (best == symbols.size()) break;
    last = found[best]->pair;
    symbols[best] = found[best]->product;
    const auto at = static_cast<std::ptrdiff_t>(best);
    symbols.erase(symbols.begin() + at + 1);
    found.erase(found.begin() + at + 1);
    if (best > 0) found[best - 1] = merges.find(symbols[best - 1], symbols[best]);
    found[best] =
        best + 1 < symbols.size() ? merges.find(symbols[best], symbols[best + 1]) : nullptr;
  }
  return last;
}

}  // namespace

void PairTable::add_unreached(const std::string& token, std::size_t id) {
  if (token.empty()) return;
  unreached_.emplace(token, static_cast<std::int32_t>(id));
  longest_unreached_ = std::max(longest_unreached_, token.size());
}

PairTable::PairTable(std::span<const std::string> tokens,
                     const std::array<std::int32_t, 256>& byte_ids, const MergeTable& merges) {
  if (tokens.size() > kMaxTokens) {
    for (std::size_t id = 0; id < tokens.size(); ++id) add_unreached(tokens[id], id);
    return;
  }
  std::vector<std::uint64_t> last_pair(tokens.size(), kNoPair);
  std::vector<std::int32_t> symbols;
  std::vector<const MergeTable::Merge*> found;
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    const std::string& token = tokens[id];
    if (token.empty()) continue;
    if (token.size() > kMaxMergedToken) {
      add_unreached(token, id);
      continue;
    }
    symbols.clear();
    for (const char c : token) symbols.push_back(byte_ids[static_cast<std::uint8_t>(c)]);
    const std::uint64_t pair = merge_all(merges, symbols, found);
    if (symbols.size() == 1 && symbols[0] == static_cast<std::int32_t>(id)) {
      last_pair[id] = pair;
      reached_.push_back(static_cast<std::int32_t>(id));
    } else {
      add_unreached(token, id);
    }
  }
  std::vector<MergeTable::Merge> kept;
  merges.for_each([&](const MergeTable::Merge& merge) {
    const auto id = static_cast<std::size_t>(merge.product);
    if (tokens[id].size() > kMaxMergedToken || last_pair[id] == merge.pair) kept.push_back(merge);
  });
  if (kept.size() >= kNone) {
    for (std::size_t id = 0; id < tokens.size(); ++id) add_unreached(tokens[id], id);
    return;
  }
  std::sort(kept.begin(), kept.end(), [](const MergeTable::Merge& a, const MergeTable::Merge& b) {
    return a.rank != b.rank ? a.rank < b.rank : a.pair < b.pair;
  });

  const std::size_t slots = std::bit_ceil(kept.size() * 5 / 4 + 16);
  slots_.assign(slots, kEmpty);
  mask_ = slots - 1;
  shift_ = 64 - std::countr_zero(slots);
  filter_.assign(slots / 8, 0);
  filter_shift_ = shift_ - 3;
  const auto falls = [](const MergeTable::Merge& a, const MergeTable::Merge& b) {
    return a.product >= b.product;
  };
  const bool rising = std::adjacent_find(kept.begin(), kept.end(), falls) == kept.end();
  for (const MergeTable::Merge& merge : kept) {
    const std::uint64_t key = pair_of(static_cast<std::int32_t>(merge.pair >> 32),
                                      static_cast<std::int32_t>(merge.pair & 0xFFFFFFFF));
    const std::uint64_t hash = key * kMultiplier;
    const std::uint64_t bit = hash >> filter_shift_;
    filter_[bit >> 6] |= 1ULL << (bit & 63);
    std::size_t slot = hash >> shift_;
    while (slots_[slot] != kEmpty) slot = (slot + 1) & mask_;
    if (rising) {
      slots_[slot] = (key << kRankBits) | static_cast<std::uint32_t>(merge.product);
    } else {
      slots_[slot] = (key << kRankBits) | products_.size();
      products_.push_back(merge.product);
    }
  }
  add_byte_pairs(byte_ids, tokens.size(), kept);
}

// From the merges: asking for each of the 65,536 pairs would cost most of what a small vocabulary
// does.
void PairTable::add_byte_pairs(const std::array<std::int32_t, 256>& byte_ids,
                               std::size_t num_tokens, std::span<const MergeTable::Merge> merges) {
  constexpr std::int32_t kNoByte = -1;
  std::vector<std::int32_t> byte_of(num_tokens, kNoByte);
  for (std::size_t byte = 0; byte < byte_ids.size(); ++byte) {
    byte_of[static_cast<std::size_t>(byte_ids[byte])] = static_cast<std::int32_t>(byte);
  }
  const std::vector<std::uint32_t> none(byte_ids.size(), kNone);
  byte_pairs_.reserve(none.size() * byte_ids.size());
  for (std::size_t byte = 0; byte < byte_ids.size(); ++byte) {
    byte_pairs_.insert(byte_pairs_.end(), none.begin(), none.end());
  }
  for (const MergeTable::Merge& merge : merges) {
    const auto left = static_cast<std::int32_t>(merge.pair >> 32);
    const auto right = static_cast<std::int32_t>(merge.pair & 0xFFFFFFFF);
    const std::int32_t first = byte_of[static_cast<std::size_t>(left)];
    const std::int32_t second = byte_of[static_cast<std::size_t>(right)];
    if (first == kNoByte || second == kNoByte) continue;
    byte_pairs_[static_cast<std::size_t>(first) << 8 | static_cast<std::size_t>(second)] =
        find(left, right);
  }
}

}  // namespace pentatron::tokenizers
