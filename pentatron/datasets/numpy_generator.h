// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace pentatron::datasets {

// NumPy's default_rng(seed), draw for draw: PCG64 (XSL-RR, 128 bits of state) seeded through
// SeedSequence (M. E. O'Neill's seed_seq hash with a pool of four words), integers by Lemire's
// method. Sources: NEP 19; O'Neill 2014, "PCG"; Lemire 2019, "Fast random integer generation in an
// interval".
class NumpyGenerator final {
 public:
  explicit NumpyGenerator(std::uint64_t seed);

  // What PCG64.random_raw() gives.
  [[nodiscard]] std::uint64_t next64();
  // Half of a 64-bit draw, the low half first; the high half is kept for the next call.
  [[nodiscard]] std::uint32_t next32();
  // Uniform in [low, high), as integers(low, high) of NumPy's int32 and int64 alike. high - low
  // must be 1 to 2^32 - 1; else ErrorKind::kInternal.
  [[nodiscard]] std::int64_t integer(std::int64_t low, std::int64_t high);

 private:
  void step();

  // __uint128_t: the C++ standard has no such type, both supported compilers have this name.
  __uint128_t state_ = 0;
  __uint128_t increment_ = 0;
  bool has_half_ = false;
  std::uint32_t half_ = 0;
};

}  // namespace pentatron::datasets
