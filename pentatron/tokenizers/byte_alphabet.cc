// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/byte_alphabet.h"

#include <unicode/utf8.h>

namespace pentatron::tokenizers {
namespace {

constexpr int kNumHidden = 68;

constexpr bool stands_for_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<std::uint16_t, 256> code_point{};
  std::array<std::uint8_t, 256 + kNumHidden> byte{};
};

constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  int hidden = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const int code_point = stands_for_itself(byte) ? byte : 256 + hidden++;
    alphabet.code_point[static_cast<std::size_t>(byte)] = static_cast<std::uint16_t>(code_point);
    alphabet.byte[static_cast<std::size_t>(code_point)] = static_cast<std::uint8_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

char32_t byte_to_code_point(std::uint8_t byte) { return kAlphabet.code_point[byte]; }

std::optional<std::uint8_t> code_point_to_byte(char32_t code_point) {
  const bool known = code_point < 256 ? stands_for_itself(static_cast<int>(code_point))
                                      : code_point < 256 + kNumHidden;
  if (!known) return std::nullopt;
  return kAlphabet.byte[code_point];
}

std::array<std::uint8_t, 256> alphabet_bytes() {
  std::array<std::uint8_t, 256> bytes{};
  std::size_t count = 0;
  for (char32_t code_point = 0; code_point < 256 + kNumHidden; ++code_point) {
    if (const auto byte = code_point_to_byte(code_point)) bytes[count++] = *byte;
  }
  return bytes;
}

std::string bytes_to_visible(std::string_view bytes) {
  std::string visible;
  visible.reserve(bytes.size() * 2);
  for (const char c : bytes) {
    const char32_t code_point = byte_to_code_point(static_cast<std::uint8_t>(c));
    if (code_point < 0x80) {
      visible.push_back(static_cast<char>(code_point));
    } else {
      visible.push_back(static_cast<char>(0xC0 | (code_point >> 6)));
      visible.push_back(static_cast<char>(0x80 | (code_point & 0x3F)));
    }
  }
  return visible;
}

std::optional<std::string> visible_to_bytes(std::string_view visible) {
  std::string bytes;
  bytes.reserve(visible.size());
  const auto* data = reinterpret_cast<const std::uint8_t*>(visible.data());
  const auto size = static_cast<std::int64_t>(visible.size());
  for (std::int64_t i = 0; i < size;) {
    UChar32 code_point = 0;
    U8_NEXT(data, i, size, code_point);
    if (code_point < 0) return std::nullopt;
    const auto byte = code_point_to_byte(static_cast<char32_t>(code_point));
    if (!byte) return std::nullopt;
    bytes.push_back(static_cast<char>(*byte));
  }
  return bytes;
}

}  // namespace pentatron::tokenizers
