// SPDX-License-Identifier: Apache-2.0
#include "pentatron/base/hash_kernels.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace pentatron::hash_kernels {
namespace {

// Remainders of each byte value under the reflected Castagnoli polynomial (RFC 3720, B.4).
constexpr std::array<std::uint32_t, 256> make_crc32c_table() {
  constexpr std::uint32_t kReflectedPolynomial = 0x82f63b78;
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc & 1) != 0 ? (crc >> 1) ^ kReflectedPolynomial : crc >> 1;
    }
    table[byte] = crc;
  }
  return table;
}
constexpr std::array<std::uint32_t, 256> kCrc32cTable = make_crc32c_table();

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) std::uint32_t crc32c_sse42(std::uint32_t crc,
                                                             const std::uint8_t* data,
                                                             std::size_t size) {
  std::uint64_t wide = crc;
  for (; size >= sizeof(std::uint64_t); size -= sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, data, sizeof(word));
    wide = _mm_crc32_u64(wide, word);
    data += sizeof(word);
  }
  auto narrow = static_cast<std::uint32_t>(wide);
  for (; size > 0; --size) narrow = _mm_crc32_u8(narrow, *data++);
  return narrow;
}
#endif

}  // namespace

std::uint32_t crc32c_portable(std::uint32_t crc, const std::uint8_t* data, std::size_t size) {
  for (; size > 0; --size) crc = kCrc32cTable[(crc ^ *data++) & 0xff] ^ (crc >> 8);
  return crc;
}

Crc32cBytes crc32c_native() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return &crc32c_sse42;
#endif
  return nullptr;
}

}  // namespace pentatron::hash_kernels
