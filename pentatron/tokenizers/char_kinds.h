// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unicode/utf8.h>

#include <array>
#include <cstdint>
#include <vector>

namespace pentatron::tokenizers {

// What the patterns of byte-level tokenizers ask of a character, as flags.
namespace char_kind {
inline constexpr std::uint8_t kLetter = 1;    // \p{L}
inline constexpr std::uint8_t kNumber = 2;    // \p{N}
inline constexpr std::uint8_t kSpace = 4;     // \s
inline constexpr std::uint8_t kNewline = 8;   // [\r\n], which are spaces too
inline constexpr std::uint8_t kUpper = 16;    // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
inline constexpr std::uint8_t kLower = 32;    // [\p{Ll}\p{Lm}\p{Lo}\p{M}]
inline constexpr std::uint8_t kNoAscii = 64;  // a byte that begins no ASCII character
inline constexpr std::uint8_t kWordOrSpace = kLetter | kNumber | kSpace;  // without: a symbol
}  // namespace char_kind

// The flags of ASCII characters, kNoAscii for other bytes.
[[nodiscard]] constexpr std::array<std::uint8_t, 256> ascii_kinds() {
  using namespace char_kind;
  std::array<std::uint8_t, 256> kinds{};
  for (std::size_t c = 0; c < 256; ++c) {
    if (c >= 0x80) {
      kinds[c] = kNoAscii;
    } else if (c >= 'a' && c <= 'z') {
      kinds[c] = kLetter | kLower;
    } else if (c >= 'A' && c <= 'Z') {
      kinds[c] = kLetter | kUpper;
    } else if (c >= '0' && c <= '9') {
      kinds[c] = kNumber;
    } else if (c == '\r' || c == '\n') {
      kinds[c] = kSpace | kNewline;
    } else if (c == ' ' || (c >= '\t' && c <= '\r')) {
      kinds[c] = kSpace;
    }
  }
  return kinds;
}
inline constexpr std::array<std::uint8_t, 256> kAsciiKinds = ascii_kinds();

// Flags of every code point in two stages of look-up, by ICU's Unicode data; a byte that is not
// part of valid UTF-8 has none.
class CharKinds final {
 public:
  // The one table, built at the first call and never changed.
  [[nodiscard]] static const CharKinds& table();

  [[nodiscard]] std::uint8_t of(std::uint32_t code_point) const {
    return flags_[(static_cast<std::size_t>(blocks_[code_point >> 8]) << 8) | (code_point & 255)];
  }

  struct Char {
    std::uint8_t flags;
    std::uint32_t size;  // bytes
  };
  // The character at data[at], at < size.
  [[nodiscard, gnu::always_inline]] Char at(const std::uint8_t* data, std::size_t at,
                                            std::size_t size) const {
    const std::uint8_t first = data[at];
    if (first < 0x80) return {kAsciiKinds[first], 1};
    return beyond_ascii(data, at, size);
  }

 private:
  CharKinds();

  [[nodiscard, gnu::noinline]] Char beyond_ascii(const std::uint8_t* data, std::size_t at,
                                                 std::size_t size) const {
    int used = 0;
    const int left = size - at < U8_MAX_LENGTH ? static_cast<int>(size - at) : U8_MAX_LENGTH;
    UChar32 code_point = 0;
    U8_NEXT(data + at, used, left, code_point);
    if (code_point < 0) return {0, 1};
    return {of(static_cast<std::uint32_t>(code_point)), static_cast<std::uint32_t>(used)};
  }

  std::vector<std::uint8_t> flags_;
  std::array<std::uint16_t, 0x1100> blocks_{};
};

}  // namespace pentatron::tokenizers
