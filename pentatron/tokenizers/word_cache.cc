// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/word_cache.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <new>

#include "pentatron/base/error.h"

namespace pentatron::tokenizers {
namespace {

constexpr std::size_t kFirstSlots = 1 << 12;
constexpr std::size_t kGrowth = 4;
constexpr std::size_t kHugePage = 2 << 20;
constexpr std::size_t kMaxPlaces = 1 << 18;  // of long words

}  // namespace

WordCache::WordCache(std::size_t max_slots)
    : max_slots_(std::bit_ceil(max_slots)),
      slots_(make_slots(std::min(max_slots_, kFirstSlots))),
      mask_(std::min(max_slots_, kFirstSlots) - 1),
      places_(std::min(max_slots_, kFirstSlots / 4)) {
  PENTATRON_CHECK(max_slots > 0, kInternal, "a tokenizer needs at least one cache slot");
}

WordCache::WordCache(const WordCache& other)
    : max_slots_(other.max_slots_),
      slots_(make_slots(other.mask_ + 1)),
      mask_(other.mask_),
      used_(other.used_),
      spill_(other.spill_),
      places_(other.places_),
      used_places_(other.used_places_),
      records_(other.records_) {
  std::memcpy(static_cast<void*>(slots_.get()), other.slots_.get(), (mask_ + 1) * sizeof(Slot));
}

WordCache::Slots WordCache::make_slots(std::size_t count) {
  const std::size_t bytes = count * sizeof(Slot);
  const bool huge = bytes >= kHugePage;  // a multiple then: both are powers of two
  void* memory = std::aligned_alloc(huge ? kHugePage : alignof(Slot), bytes);
  if (memory == nullptr) throw std::bad_alloc();
  // Large pages: a look-up then misses one table less. Advice only, so the answer does not matter.
  if (huge) static_cast<void>(madvise(memory, bytes, MADV_HUGEPAGE));
  std::memset(memory, 0, bytes);
  return Slots(static_cast<Slot*>(memory));
}

std::uint64_t WordCache::hash_of(std::string_view word) {
  std::uint64_t hash = word.size() ^ kSeedA;
  const char* bytes = word.data();
  std::size_t left = word.size();
  std::uint64_t a = 0;
  std::uint64_t b = 0;
  for (; left > 16; left -= 16, bytes += 16) {
    std::memcpy(&a, bytes, 8);
    std::memcpy(&b, bytes + 8, 8);
    hash = mixed(a ^ kSeedB, b ^ hash);
  }
  // The last sixteen bytes, which may overlap those before; there are as many.
  std::memcpy(&a, bytes + left - 16, 8);
  std::memcpy(&b, bytes + left - 8, 8);
  return mixed(a ^ kSeedB, b ^ hash);
}

void WordCache::place(const Slot& slot, std::uint64_t hash) {
  std::size_t at = hash & mask_;
  for (std::size_t probe = 0; probe < kProbes; ++probe, at = (at + 1) & mask_) {
    if (slots_[at].key.high != 0) continue;
    slots_[at] = slot;
    ++used_;
    return;
  }
  slots_[hash & mask_] = slot;
}

void WordCache::grow() {
  const std::size_t count = mask_ + 1;
  const Slots old = std::move(slots_);
  const std::size_t larger = std::min(kGrowth * count, max_slots_);
  slots_ = make_slots(larger);
  mask_ = larger - 1;
  used_ = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (old[i].key.high != 0) place(old[i], hash_of(old[i].key));
  }
}

void WordCache::remember_short(const Key& key, std::uint64_t hash,
                               std::span<const std::int32_t> ids) {
  Slot slot{.key = key, .ids = {}};
  if (ids.size() <= kInlineIds) {
    std::memcpy(slot.ids, ids.data(), ids.size_bytes());
    slot.ids[0] |= static_cast<std::uint32_t>(ids.size()) << kCountShift;
  } else {
    if (spill_.size() + ids.size() > kMaxSpill) {  // start again: what is in use comes back
      spill_.clear();
      std::memset(static_cast<void*>(slots_.get()), 0, (mask_ + 1) * sizeof(Slot));
      used_ = 0;
    }
    slot.ids[0] = kSpilled << kCountShift;
    slot.ids[1] = static_cast<std::uint32_t>(spill_.size());
    slot.ids[2] = static_cast<std::uint32_t>(ids.size());
    spill_.insert(spill_.end(), ids.begin(), ids.end());
  }
  if (2 * used_ > mask_ && mask_ + 1 < max_slots_) grow();
  place(slot, hash);
}

std::string_view WordCache::record_word(std::size_t record) const {
  const std::uint32_t* at = &records_[record];
  return {reinterpret_cast<const char*>(at + 2 + at[1]), at[0]};
}

std::size_t WordCache::recall_long(std::string_view word, std::uint64_t hash,
                                   std::int32_t* ids) const {
  const std::size_t mask = places_.size() - 1;
  std::size_t at = hash & mask;
  const auto tag = static_cast<std::uint32_t>(hash >> 32);
  for (std::size_t probe = 0; probe < kProbes; ++probe, at = (at + 1) & mask) {
    const Place& place = places_[at];
    if (place.record == 0) return 0;
    if (place.tag != tag || record_word(place.record - 1) != word) continue;
    const std::uint32_t* record = &records_[place.record - 1];
    std::memcpy(ids, record + 2, record[1] * sizeof(*ids));
    return record[1];
  }
  return 0;
}

void WordCache::place_record(const Place& place, std::uint64_t hash) {
  const std::size_t mask = places_.size() - 1;
  std::size_t at = hash & mask;
  for (std::size_t probe = 0; probe < kProbes; ++probe, at = (at + 1) & mask) {
    if (places_[at].record != 0) continue;
    places_[at] = place;
    ++used_places_;
    return;
  }
  places_[hash & mask] = place;
}

void WordCache::grow_places() {
  std::vector<Place> old(2 * places_.size());
  std::swap(places_, old);
  used_places_ = 0;
  for (const Place& place : old) {
    if (place.record != 0) place_record(place, hash_of(record_word(place.record - 1)));
  }
}

void WordCache::remember_long(std::string_view word, std::uint64_t hash,
                              std::span<const std::int32_t> ids) {
  if (records_.size() + 2 + ids.size() + (word.size() + 3) / 4 > kMaxRecords) {
    records_.clear();
    places_.assign(places_.size(), Place{});
    used_places_ = 0;
  }
  if (2 * used_places_ >= places_.size() && places_.size() < std::min(max_slots_, kMaxPlaces)) {
    grow_places();
  }
  const std::size_t record = records_.size();
  records_.push_back(static_cast<std::uint32_t>(word.size()));
  records_.push_back(static_cast<std::uint32_t>(ids.size()));
  for (const std::int32_t id : ids) records_.push_back(static_cast<std::uint32_t>(id));
  records_.resize(records_.size() + (word.size() + 3) / 4);
  std::memcpy(&records_[record + 2 + ids.size()], word.data(), word.size());
  place_record({static_cast<std::uint32_t>(hash >> 32), static_cast<std::uint32_t>(record + 1)},
               hash);
}

}  // namespace pentatron::tokenizers
