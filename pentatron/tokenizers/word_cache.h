// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace pentatron::tokenizers {

// Token ids of words that were encoded before; of one thread. It never changes what a word's ids
// are. Words of up to kShortBytes lie in slots of half a cache line with up to four ids; longer
// ones, up to kLongBytes, in records behind a table of their hashes. Both grow up to a limit; then
// words replace each other, and texts made to collide cost no more than kProbes looks.
class WordCache final {
 public:
  static constexpr std::size_t kDefaultSlots = 1 << 20;  // 32 MiB when all are in use
  static constexpr std::size_t kShortBytes = 15;
  static constexpr std::size_t kLongBytes = 256;
  static constexpr std::size_t kPadding = 4;  // ids that recall() may write beyond the last

  // `max_slots` of short words, at least 1 (rounded up to a power of two).
  explicit WordCache(std::size_t max_slots = kDefaultSlots);
  WordCache(const WordCache& other);
  WordCache& operator=(const WordCache&) = delete;

  // A word of 1 to kShortBytes bytes: its bytes and, in the last byte, its size.
  struct Key {
    std::uint64_t low = 0;
    std::uint64_t high = 0;
    bool operator==(const Key&) const = default;
  };
  // `readable`: bytes that may be read from the word's first one on.
  [[nodiscard]] static Key key_of(const char* word, std::size_t size, std::size_t readable);
  [[nodiscard]] static std::uint64_t hash_of(const Key& key) {
    return mixed(key.low ^ kSeedA, key.high ^ kSeedB);
  }
  // Of a word of more than kShortBytes.
  [[nodiscard]] static std::uint64_t hash_of(std::string_view word);

  void prefetch_short(std::uint64_t hash) const { prefetch(&slots_.get()[hash & mask_]); }
  void prefetch_long(std::uint64_t hash) const { prefetch(&places_[hash & (places_.size() - 1)]); }

  // Writes the word's ids to `ids`, which has room for kShortBytes (kLongBytes) + kPadding, and
  // returns how many they are; 0: the word is not there.
  [[nodiscard]] std::size_t recall_short(const Key& key, std::uint64_t hash,
                                         std::int32_t* ids) const;
  [[nodiscard]] std::size_t recall_long(std::string_view word, std::uint64_t hash,
                                        std::int32_t* ids) const;
  // A word that is not there, and its ids, at most as many as bytes.
  void remember_short(const Key& key, std::uint64_t hash, std::span<const std::int32_t> ids);
  void remember_long(std::string_view word, std::uint64_t hash, std::span<const std::int32_t> ids);

 private:
  static constexpr std::size_t kProbes = 8;
  static constexpr std::size_t kMaxSpill = 1 << 22;    // ids of short words with more than four
  static constexpr std::size_t kMaxRecords = 1 << 22;  // 16 MiB
  static constexpr std::size_t kInlineIds = 4;
  static constexpr int kCountShift = 28;  // ids are below 2^24; the first one's top bits count
  static constexpr std::uint32_t kSpilled = 15;
  static constexpr std::uint64_t kSeedA = 0xA0761D6478BD642FULL;
  static constexpr std::uint64_t kSeedB = 0xE7037ED1A0B428DBULL;

  struct alignas(32) Slot {
    Key key;  // high 0: free
    std::uint32_t ids[kInlineIds];
  };
  struct Place {
    std::uint32_t tag;     // of the hash
    std::uint32_t record;  // one above its place in records_; 0: free
  };
  struct Release {
    void operator()(Slot* slots) const { std::free(slots); }  // NOLINT
  };
  using Slots = std::unique_ptr<Slot[], Release>;

  static void prefetch(const void* address) { __builtin_prefetch(address); }
  [[nodiscard]] static std::uint64_t mixed(std::uint64_t a, std::uint64_t b) {
    __extension__ using Wide = unsigned __int128;
    const Wide product = static_cast<Wide>(a) * b;
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
  }
  [[nodiscard]] static Slots make_slots(std::size_t count);
  void grow();
  void place(const Slot& slot, std::uint64_t hash);
  void grow_places();
  void place_record(const Place& place, std::uint64_t hash);
  [[nodiscard]] std::string_view record_word(std::size_t record) const;

  std::size_t max_slots_;
  Slots slots_;
  std::size_t mask_ = 0;
  std::size_t used_ = 0;
  std::vector<std::int32_t> spill_;
  std::vector<Place> places_;
  std::size_t used_places_ = 0;
  std::vector<std::uint32_t> records_;  // size, number of ids, ids, bytes
};

[[gnu::always_inline]] inline WordCache::Key WordCache::key_of(const char* word, std::size_t size,
                                                               std::size_t readable) {
  Key key;
  if (readable < 16) {
    char bytes[16] = {};
    std::memcpy(bytes, word, size);
    std::memcpy(&key.low, bytes, 8);
    std::memcpy(&key.high, bytes + 8, 8);
  } else {
    std::memcpy(&key.low, word, 8);
    std::memcpy(&key.high, word + 8, 8);
    // A shift by 64 is none: the two halves have their own.
    const std::uint64_t keep_low = size >= 8 ? ~0ULL : (1ULL << (8 * size)) - 1;
    const std::uint64_t keep_high = size <= 8 ? 0 : (1ULL << (8 * (size - 8))) - 1;
    key.low &= keep_low;
    key.high &= keep_high;
  }
  key.high |= static_cast<std::uint64_t>(size) << 56;
  return key;
}

[[gnu::always_inline]] inline std::size_t WordCache::recall_short(const Key& key,
                                                                  std::uint64_t hash,
                                                                  std::int32_t* ids) const {
  std::size_t at = hash & mask_;
  for (std::size_t probe = 0; probe < kProbes; ++probe, at = (at + 1) & mask_) {
    const Slot& slot = slots_[at];
    if (slot.key == key) {
      const std::uint32_t count = slot.ids[0] >> kCountShift;
      if (count == kSpilled) [[unlikely]] {
        std::memcpy(ids, &spill_[slot.ids[1]], slot.ids[2] * sizeof(*ids));
        return slot.ids[2];
      }
      // All four: cheaper than asking how many.
      std::memcpy(ids, slot.ids, sizeof(slot.ids));
      ids[0] &= (1 << kCountShift) - 1;
      return count;
    }
    if (slot.key.high == 0) return 0;
  }
  return 0;
}

}  // namespace pentatron::tokenizers
