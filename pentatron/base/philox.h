// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "pentatron/base/keyed_math.h"

// Counter-based random numbers, the same on host and device: Philox4x32-10 of J. K. Salmon,
// M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
// A number is a pure function of its key and counter; there is no state to store.
namespace pentatron {

struct PhiloxWords {
  std::uint32_t v[4];
};

struct PhiloxKey {
  std::uint32_t v[2];
};

// Ten rounds over a counter of four words.
PENTATRON_HD inline PhiloxWords philox4x32_10(PhiloxWords counter, PhiloxKey key) {
  constexpr std::uint64_t kMultiplier0 = 0xD2511F53;
  constexpr std::uint64_t kMultiplier1 = 0xCD9E8D57;
  constexpr std::uint32_t kWeyl0 = 0x9E3779B9;  // golden ratio
  constexpr std::uint32_t kWeyl1 = 0xBB67AE85;  // sqrt(3) - 1
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = kMultiplier0 * counter.v[0];
    const std::uint64_t product1 = kMultiplier1 * counter.v[2];
    const std::uint32_t high0 = static_cast<std::uint32_t>(product0 >> 32);
    const std::uint32_t high1 = static_cast<std::uint32_t>(product1 >> 32);
    counter = {{high1 ^ counter.v[1] ^ key.v[0], static_cast<std::uint32_t>(product1),
                high0 ^ counter.v[3] ^ key.v[1], static_cast<std::uint32_t>(product0)}};
    key.v[0] += kWeyl0;
    key.v[1] += kWeyl1;
  }
  return counter;
}

// One call keyed by (seed, stream, index): the seed is Philox's key, index and stream its counter,
// so all 192 bits count.
PENTATRON_HD inline PhiloxWords philox_words(std::uint64_t seed, std::uint64_t stream,
                                             std::uint64_t index) {
  const PhiloxWords counter = {
      {static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
       static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)}};
  const PhiloxKey key = {
      {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)}};
  return philox4x32_10(counter, key);
}

struct PhiloxDraws {
  std::uint16_t v[8];
};

// Eight 16-bit draws of one call: words in order, low half first.
PENTATRON_HD inline PhiloxDraws philox_draws(PhiloxWords words) {
  PhiloxDraws draws{};
  for (int i = 0; i < 4; ++i) {
    draws.v[2 * i] = static_cast<std::uint16_t>(words.v[i] & 0xffff);
    draws.v[2 * i + 1] = static_cast<std::uint16_t>(words.v[i] >> 16);
  }
  return draws;
}

// Uniform in [0, 1) with 53 random bits: the upper bits of (high, low).
PENTATRON_HD inline double philox_unit_double(std::uint32_t high, std::uint32_t low) {
  constexpr double kTwoToMinus53 = 1.0 / 9007199254740992.0;
  const std::uint64_t bits = (static_cast<std::uint64_t>(high) << 32) | low;
  return static_cast<double>(bits >> 11) * kTwoToMinus53;
}

// Uniform in [0, 1) for element `index` of stream `stream`.
PENTATRON_HD inline double philox_uniform(std::uint64_t seed, std::uint64_t stream,
                                          std::uint64_t index) {
  const PhiloxWords words = philox_words(seed, stream, index);
  return philox_unit_double(words.v[0], words.v[1]);
}

// Uniform in [-1, 1).
PENTATRON_HD inline double philox_centred(std::uint64_t seed, std::uint64_t stream,
                                          std::uint64_t index) {
  return 2.0 * philox_uniform(seed, stream, index) - 1.0;
}

// Standard normal in fp64 for element `index` of stream `stream`: the cosine half of Box-Muller
// over one call. The same bits on hosts and devices (keyed_math.h).
PENTATRON_HD inline double philox_normal(std::uint64_t seed, std::uint64_t stream,
                                         std::uint64_t index) {
  const PhiloxWords words = philox_words(seed, stream, index);
  const double radius_draw = 1.0 - philox_unit_double(words.v[0], words.v[1]);  // (0, 1]
  const double angle_draw = philox_unit_double(words.v[2], words.v[3]);
  return keyed_math::product(keyed_math::root(-2.0 * keyed_math::log(radius_draw)),
                             keyed_math::cos_turns(angle_draw));
}

// FNV-1a, 64 bits: names to streams. (Fowler, Noll, Vo.)
[[nodiscard]] constexpr std::uint64_t fnv1a64(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : name) {
    hash ^= static_cast<std::uint8_t>(c);
    hash *= 0x100000001b3;
  }
  return hash;
}

}  // namespace pentatron
