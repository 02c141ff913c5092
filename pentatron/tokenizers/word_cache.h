// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

namespace pentatron::tokenizers {

// Token ids of short words that were encoded before: a direct-mapped table that threads share. It
// never changes what a word's ids are.
class WordCache final {
 public:
  static constexpr std::size_t kDefaultSlots = 1 << 14;

  // At least 1 slot of 56 bytes: kInternal otherwise.
  explicit WordCache(std::size_t slots = kDefaultSlots);

  // Appends the word's ids; false, changing nothing, when the word is not there.
  [[nodiscard]] bool recall(std::string_view word, std::vector<std::int32_t>& ids) const;
  // Words and encodings that are too long are not kept.
  void remember(std::string_view word, std::span<const std::int32_t> tokens) const;

 private:
  static constexpr std::size_t kBytes = 22;
  static constexpr std::size_t kTokens = 8;
  static constexpr std::size_t kLocks = 64;

  struct Slot {
    std::array<char, kBytes> text;
    std::uint8_t text_size;  // 0: free
    std::uint8_t num_tokens;
    std::array<std::int32_t, kTokens> tokens;
  };
  [[nodiscard]] std::size_t slot_of(std::string_view word) const;

  mutable std::vector<Slot> slots_;
  mutable std::array<std::mutex, kLocks> locks_;
};

}  // namespace pentatron::tokenizers
