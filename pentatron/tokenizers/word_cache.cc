// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/word_cache.h"

#include <algorithm>
#include <functional>

#include "pentatron/base/error.h"

namespace pentatron::tokenizers {

WordCache::WordCache(std::size_t slots) : slots_(slots, Slot{}) {
  PENTATRON_CHECK(slots > 0, kInternal, "a tokenizer needs at least one cache slot");
}

std::size_t WordCache::slot_of(std::string_view word) const {
  return std::hash<std::string_view>()(word) % slots_.size();
}

bool WordCache::recall(std::string_view word, std::vector<std::int32_t>& ids) const {
  if (word.empty() || word.size() > kBytes) return false;
  const std::size_t index = slot_of(word);
  const std::lock_guard lock(locks_[index % kLocks]);
  const Slot& slot = slots_[index];
  if (std::string_view(slot.text.data(), slot.text_size) != word) return false;
  ids.insert(ids.end(), slot.tokens.begin(), slot.tokens.begin() + slot.num_tokens);
  return true;
}

void WordCache::remember(std::string_view word, std::span<const std::int32_t> tokens) const {
  if (word.empty() || word.size() > kBytes || tokens.size() > kTokens) return;
  const std::size_t index = slot_of(word);
  const std::lock_guard lock(locks_[index % kLocks]);
  Slot& slot = slots_[index];
  std::copy(word.begin(), word.end(), slot.text.begin());
  std::copy(tokens.begin(), tokens.end(), slot.tokens.begin());
  slot.text_size = static_cast<std::uint8_t>(word.size());
  slot.num_tokens = static_cast<std::uint8_t>(tokens.size());
}

}  // namespace pentatron::tokenizers
