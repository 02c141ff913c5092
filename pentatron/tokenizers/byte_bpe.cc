// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/byte_bpe.h"

#include <algorithm>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/tokenizers/word_scanner.h"

namespace pentatron::tokenizers {
namespace {

constexpr std::size_t kBlock = 64;  // words looked up together
constexpr std::size_t kMaxIds = WordCache::kLongBytes + WordCache::kPadding;  // of a cached word
constexpr std::size_t kOutput = 2048;

// Four ranks side by side.
constexpr std::size_t kLanes = 4;
using Lanes = std::int32_t __attribute__((vector_size(16)));
constexpr std::int32_t kNoMerge = INT32_MAX;
constexpr std::size_t kFew = 20;

std::int32_t smallest(const std::int32_t* keys, std::size_t count) {
  // One by one, few keys do not wait for the ones just written to come together.
  if (count <= kFew) {
    std::int32_t even = keys[0];
    std::int32_t odd = keys[1];
    for (std::size_t i = 2; i < count; i += 2) {
      even = std::min(even, keys[i]);
      odd = std::min(odd, keys[i + 1]);
    }
    return std::min(even, odd);
  }
  Lanes least{kNoMerge, kNoMerge, kNoMerge, kNoMerge};
  for (std::size_t i = 0; i < count; i += kLanes) {
    Lanes next;
    std::memcpy(&next, keys + i, sizeof(next));
    least = next < least ? next : least;
  }
  return std::min(std::min(least[0], least[1]), std::min(least[2], least[3]));
}

}  // namespace

// What one call at a time works with.
struct ByteBpe::Scratch {
  explicit Scratch(const WordCache& known_words) : cache(known_words) {}

  struct PendingWord {
    std::size_t begin;
    std::size_t size;
    std::uint64_t hash;
    WordCache::Key key;  // of a short one
  };
  WordCache cache;
  std::array<PendingWord, kBlock> words;
  std::array<std::int32_t, kOutput> output;
  // Of the word that is merged: symbols, (rank, place) of the merge with the next one, neighbours.
  std::array<std::int32_t, WordCache::kLongBytes> symbols;
  std::array<std::int32_t, WordCache::kLongBytes + kLanes> keys;
  std::array<std::uint16_t, WordCache::kLongBytes + 1> next;
  std::array<std::uint16_t, WordCache::kLongBytes + 1> previous;
};

ByteBpe::ByteBpe(std::span<const std::string> tokens, const std::array<std::int32_t, 256>& byte_ids,
                 const MergeTable& merges, bool whole_words, std::size_t cache_slots)
    : byte_ids_(byte_ids),
      pairs_(tokens, byte_ids, merges),
      merger_(merges),
      whole_words_(whole_words),
      known_words_(cache_slots) {
  PENTATRON_CHECK(cache_slots > 0, kInternal, "a tokenizer needs at least one cache slot");
  // Words that are tokens are known from the start, where there is room.
  if (4 * pairs_.reached().size() > cache_slots) return;
  for (const std::int32_t id : pairs_.reached()) {
    const std::string& token = tokens[static_cast<std::size_t>(id)];
    if (token.size() > WordCache::kShortBytes) continue;
    const WordCache::Key key = WordCache::key_of(token.data(), token.size(), token.size());
    known_words_.remember_short(key, WordCache::hash_of(key), {&id, 1});
  }
}

ByteBpe::~ByteBpe() = default;

// A word of 1 to kLongBytes bytes. The lowest rank is found among keys of rank and place, so that
// the leftmost of equal ones wins; a symbol that was merged away leaves a key that never does.
std::size_t ByteBpe::merge_short(std::string_view word, Scratch& s, std::int32_t* ids,
                                 BpeWork& work) const {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(word.data());
  const std::size_t count = word.size();
  const auto key_of = [](std::uint32_t rank, std::size_t place) {
    return rank == PairTable::kNone
               ? kNoMerge
               : static_cast<std::int32_t>((rank << 8) | static_cast<std::uint32_t>(place));
  };
  for (std::size_t i = 0; i < count; ++i) {
    s.symbols[i] = byte_ids_[bytes[i]];
    s.next[i] = static_cast<std::uint16_t>(i + 1);
    s.previous[i + 1] = static_cast<std::uint16_t>(i);
  }
  for (std::size_t i = 0; i + 1 < count; ++i) {
    s.keys[i] = key_of(pairs_.of_bytes(bytes[i], bytes[i + 1]), i);
  }
  std::fill_n(s.keys.begin() + static_cast<std::ptrdiff_t>(count) - 1, kLanes, kNoMerge);
  work.pair_lookups += count - 1;
  for (;;) {
    const std::int32_t key = smallest(s.keys.data(), count);
    work.scan_steps += count;
    if (key == kNoMerge) break;
    const auto left = static_cast<std::size_t>(key & 255);
    const std::size_t right = s.next[left];
    const std::size_t after = s.next[right];
    s.symbols[left] = pairs_.product(static_cast<std::uint32_t>(key) >> 8);
    s.next[left] = static_cast<std::uint16_t>(after);
    s.previous[after] = static_cast<std::uint16_t>(left);
    s.keys[right] = kNoMerge;
    s.keys[left] =
        after < count ? key_of(pairs_.find(s.symbols[left], s.symbols[after]), left) : kNoMerge;
    if (left > 0) {
      const std::size_t before = s.previous[left];
      s.keys[before] = key_of(pairs_.find(s.symbols[before], s.symbols[left]), before);
    }
    work.pair_lookups += 2;
  }
  std::size_t num_ids = 0;
  for (std::size_t i = 0; i < count; i = s.next[i]) ids[num_ids++] = s.symbols[i];
  return num_ids;
}

std::size_t ByteBpe::merge(std::string_view word, Scratch& scratch, std::int32_t* ids,
                           BpeWork& work) const {
  if (!pairs_.fits()) {
    std::vector<std::int32_t> symbols;
    encode_huge_word(word, symbols, work);
    std::copy(symbols.begin(), symbols.end(), ids);
    return symbols.size();
  }
  const std::size_t count = merge_short(word, scratch, ids, work);
  if (count > 1 && whole_words_) {
    if (const std::int32_t whole = pairs_.find_unreached(word); whole >= 0) {
      ids[0] = whole;
      return 1;
    }
  }
  return count;
}

// A word that is too long for the caches, or of a vocabulary that PairTable cannot hold.
void ByteBpe::encode_huge_word(std::string_view word, std::vector<std::int32_t>& ids,
                               BpeWork& work) const {
  if (whole_words_) {
    if (const std::int32_t whole = pairs_.find_unreached(word); whole >= 0) {
      ids.push_back(whole);
      return;
    }
  }
  std::vector<std::int32_t> symbols;
  symbols.reserve(word.size());
  for (const char c : word) symbols.push_back(byte_ids_[static_cast<std::uint8_t>(c)]);
  merger_.merge(symbols, work);
  ids.insert(ids.end(), symbols.begin(), symbols.end());
}

void ByteBpe::look_up_block(std::string_view text, std::size_t num_words,
                            std::vector<std::int32_t>& ids, Scratch& s, BpeWork& work) const {
  std::int32_t* out = s.output.data();
  std::int32_t* const full = out + kOutput - kMaxIds;
  const auto flush = [&] {
    ids.insert(ids.end(), s.output.data(), out);
    out = s.output.data();
  };
  work.words += num_words;
  for (std::size_t i = 0; i < num_words; ++i) {
    const Scratch::PendingWord& word = s.words[i];
    if (out > full) flush();
    if (word.size <= WordCache::kShortBytes) [[likely]] {
      std::size_t count = s.cache.recall_short(word.key, word.hash, out);
      if (count == 0) [[unlikely]] {
        count = merge(text.substr(word.begin, word.size), s, out, work);
        s.cache.remember_short(word.key, word.hash, {out, count});
        --work.cache_hits;
      }
      ++work.cache_hits;
      out += count;
      continue;
    }
    const std::string_view bytes = text.substr(word.begin, word.size);
    if (word.size <= WordCache::kLongBytes) {
      std::size_t count = s.cache.recall_long(bytes, word.hash, out);
      if (count == 0) {
        count = merge(bytes, s, out, work);
        s.cache.remember_long(bytes, word.hash, {out, count});
        --work.cache_hits;
      }
      ++work.cache_hits;
      out += count;
    } else {
      flush();
      encode_huge_word(bytes, ids, work);
    }
  }
  flush();
}

template <WordRule kRule>
void ByteBpe::encode_text(std::string_view text, std::vector<std::int32_t>& ids, Scratch& s,
                          BpeWork& work) const {
  const WordScanner scanner(text);
  for (std::size_t at = 0; at < text.size();) {
    std::size_t num_words = 0;
    for (; num_words < kBlock && at < text.size(); ++num_words) {
      Scratch::PendingWord& word = s.words[num_words];
      const std::size_t end = scanner.word_end<kRule>(at);
      word.begin = at;
      word.size = end - at;
      if (word.size <= WordCache::kShortBytes) {
        word.key = WordCache::key_of(text.data() + at, word.size, text.size() - at);
        word.hash = WordCache::hash_of(word.key);
        s.cache.prefetch_short(word.hash);
      } else if (word.size <= WordCache::kLongBytes) {
        word.hash = WordCache::hash_of(text.substr(at, word.size));
        s.cache.prefetch_long(word.hash);
      }
      at = end;
    }
    look_up_block(text, num_words, ids, s, work);
  }
}

void ByteBpe::encode(WordRule rule, std::string_view text, std::vector<std::int32_t>& ids,
                     BpeWork& work) const {
  if (text.empty()) return;
  const auto scratch = scratches_.borrow([&] { return std::make_unique<Scratch>(known_words_); });
  switch (rule) {
    case WordRule::kGpt2:
      return encode_text<WordRule::kGpt2>(text, ids, *scratch, work);
    case WordRule::kCl100k:
      return encode_text<WordRule::kCl100k>(text, ids, *scratch, work);
    case WordRule::kLlama3:
      return encode_text<WordRule::kLlama3>(text, ids, *scratch, work);
    case WordRule::kQwen2:
      return encode_text<WordRule::kQwen2>(text, ids, *scratch, work);
    case WordRule::kO200k:
      return encode_text<WordRule::kO200k>(text, ids, *scratch, work);
    case WordRule::kMegatronV1:
      return encode_text<WordRule::kMegatronV1>(text, ids, *scratch, work);
    case WordRule::kMegatronV2:
      return encode_text<WordRule::kMegatronV2>(text, ids, *scratch, work);
  }
}

void ByteBpe::encode_word(std::string_view word, std::vector<std::int32_t>& ids) const {
  BpeWork work;
  const auto loan = scratches_.borrow([&] { return std::make_unique<Scratch>(known_words_); });
  Scratch& s = *loan;
  Scratch::PendingWord& pending = s.words[0];
  pending.begin = 0;
  pending.size = word.size();
  if (word.size() <= WordCache::kShortBytes) {
    pending.key = WordCache::key_of(word.data(), word.size(), word.size());
    pending.hash = WordCache::hash_of(pending.key);
  } else if (word.size() <= WordCache::kLongBytes) {
    pending.hash = WordCache::hash_of(word);
  }
  look_up_block(word, 1, ids, s, work);
}

}  // namespace pentatron::tokenizers
