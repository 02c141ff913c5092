// SPDX-License-Identifier: Apache-2.0
#include "pentatron/base/crc32c.h"

#include <array>

namespace pentatron {
namespace {

constexpr std::uint32_t kReflectedPolynomial = 0x82F63B78U;

// Remainder of each byte value.
constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    std::uint32_t remainder = byte;
    for (int bit = 0; bit < 8; ++bit) {
      remainder = (remainder >> 1) ^ ((remainder & 1U) != 0 ? kReflectedPolynomial : 0U);
    }
    table[byte] = remainder;
  }
  return table;
}

constexpr std::array<std::uint32_t, 256> kTable = make_table();

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t crc = ~0U;
  for (const char c : bytes) {
    crc = (crc >> 8) ^ kTable[(crc ^ static_cast<unsigned char>(c)) & 0xFFU];
  }
  return ~crc;
}

}  // namespace pentatron
