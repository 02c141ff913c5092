// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/base64.h"

#include <array>
#include <cstdint>

namespace pentatron::tokenizers {
namespace {

constexpr std::int8_t kNoDigit = -1;

constexpr std::array<std::int8_t, 256> digit_values() {
  constexpr std::string_view kAlphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::array<std::int8_t, 256> values{};
  values.fill(kNoDigit);
  for (std::size_t i = 0; i < kAlphabet.size(); ++i) {
    values[static_cast<std::uint8_t>(kAlphabet[i])] = static_cast<std::int8_t>(i);
  }
  return values;
}

}  // namespace

std::optional<std::string> base64_decoded(std::string_view text) {
  static constexpr std::array<std::int8_t, 256> kValues = digit_values();
  if (text.size() % 4 != 0) return std::nullopt;
  while (text.ends_with('=') && text.size() % 4 != 2) text.remove_suffix(1);
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3 + 2);
  std::uint32_t bits = 0;
  int num_bits = 0;
  for (const char c : text) {
    const std::int8_t value = kValues[static_cast<std::uint8_t>(c)];
    if (value == kNoDigit) return std::nullopt;
    bits = (bits << 6) | static_cast<std::uint32_t>(value);
    num_bits += 6;
    if (num_bits >= 8) {
      num_bits -= 8;
      bytes += static_cast<char>((bits >> num_bits) & 0xFF);
    }
  }
  return bytes;
}

}  // namespace pentatron::tokenizers
