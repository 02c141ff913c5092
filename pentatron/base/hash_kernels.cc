// SPDX-License-Identifier: Apache-2.0
#include "pentatron/base/hash_kernels.h"

#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace pentatron::hash_kernels {
namespace {

// FIPS 180-4, 4.2.2: first 32 bits of the fractional parts of the cube roots of the first 64
// primes.
alignas(16) constexpr std::array<std::uint32_t, 64> kSha256Constants = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

std::uint32_t load_big_endian(const std::uint8_t* at) {
  return static_cast<std::uint32_t>(at[0]) << 24 | static_cast<std::uint32_t>(at[1]) << 16 |
         static_cast<std::uint32_t>(at[2]) << 8 | static_cast<std::uint32_t>(at[3]);
}

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
__attribute__((target("sha,sse4.1,ssse3"))) void sha256_blocks_sha_ni(Sha256State& state,
                                                                      const std::uint8_t* data,
                                                                      std::size_t count) {
  const auto lane = [&state](std::size_t i) { return static_cast<int>(state[i]); };
  // The instructions keep a, b, e, f in one register and c, d, g, h in the other.
  __m128i abef = _mm_set_epi32(lane(0), lane(1), lane(4), lane(5));
  __m128i cdgh = _mm_set_epi32(lane(2), lane(3), lane(6), lane(7));
  const __m128i byte_swap = _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
  for (; count > 0; --count, data += kSha256BlockBytes) {
    const __m128i abef_before = abef;
    const __m128i cdgh_before = cdgh;
    __m128i w[4];  // the last 16 words of the message schedule, a ring
#pragma GCC unroll 16
    for (int quad = 0; quad < 16; ++quad) {
      __m128i& now = w[quad & 3];
      if (quad < 4) {
        now = _mm_loadu_si128(reinterpret_cast<const __m128i*>(data) + quad);
        now = _mm_shuffle_epi8(now, byte_swap);
      } else {
        const __m128i last = w[(quad + 3) & 3];
        const __m128i seven_back = _mm_alignr_epi8(last, w[(quad + 2) & 3], 4);
        now = _mm_add_epi32(_mm_sha256msg1_epu32(now, w[(quad + 1) & 3]), seven_back);
        now = _mm_sha256msg2_epu32(now, last);
      }
      const __m128i* constants = reinterpret_cast<const __m128i*>(kSha256Constants.data()) + quad;
      __m128i words = _mm_add_epi32(now, _mm_load_si128(constants));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, words);
      words = _mm_shuffle_epi32(words, 0x0e);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, words);
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  std::array<std::uint32_t, 4> feba{};
  std::array<std::uint32_t, 4> hgdc{};
  _mm_storeu_si128(reinterpret_cast<__m128i*>(feba.data()), abef);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(hgdc.data()), cdgh);
  state = {feba[3], feba[2], hgdc[3], hgdc[2], feba[1], feba[0], hgdc[1], hgdc[0]};
}

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

bool cpu_has_sha() {
  constexpr unsigned kShaBit = 1U << 29;  // leaf 7, EBX
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __builtin_cpu_supports("ssse3") && __builtin_cpu_supports("sse4.1") &&
         __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (ebx & kShaBit) != 0;
}
#endif

}  // namespace

void sha256_blocks_portable(Sha256State& state, const std::uint8_t* data, std::size_t count) {
  std::array<std::uint32_t, 64> w{};
  for (; count > 0; --count, data += kSha256BlockBytes) {
    for (std::size_t t = 0; t < 16; ++t) w[t] = load_big_endian(data + 4 * t);
    for (std::size_t t = 16; t < 64; ++t) {
      const std::uint32_t sigma0 =
          std::rotr(w[t - 15], 7) ^ std::rotr(w[t - 15], 18) ^ (w[t - 15] >> 3);
      const std::uint32_t sigma1 =
          std::rotr(w[t - 2], 17) ^ std::rotr(w[t - 2], 19) ^ (w[t - 2] >> 10);
      w[t] = sigma1 + w[t - 7] + sigma0 + w[t - 16];
    }
    auto [a, b, c, d, e, f, g, h] = state;
    for (std::size_t t = 0; t < 64; ++t) {
      const std::uint32_t sum1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
      const std::uint32_t choose = (e & f) ^ (~e & g);
      const std::uint32_t t1 = h + sum1 + choose + kSha256Constants[t] + w[t];
      const std::uint32_t sum0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
      const std::uint32_t majority = (a & b) ^ (a & c) ^ (b & c);
      h = g;
      g = f;
      f = e;
      e = d + t1;
      d = c;
      c = b;
      b = a;
      a = t1 + sum0 + majority;
    }
    const Sha256State step = {a, b, c, d, e, f, g, h};
    for (std::size_t i = 0; i < state.size(); ++i) state[i] += step[i];
  }
}

std::uint32_t crc32c_portable(std::uint32_t crc, const std::uint8_t* data, std::size_t size) {
  for (; size > 0; --size) crc = kCrc32cTable[(crc ^ *data++) & 0xff] ^ (crc >> 8);
  return crc;
}

Sha256Blocks sha256_blocks_native() {
#if defined(__x86_64__)
  if (cpu_has_sha()) return &sha256_blocks_sha_ni;
#endif
  return nullptr;
}

Crc32cBytes crc32c_native() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return &crc32c_sse42;
#endif
  return nullptr;
}

}  // namespace pentatron::hash_kernels
