// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>

// What the row kernels share: function multiversioning and an exponential that the vectoriser
// understands.

// One body, compiled for AVX-512, AVX2 and the baseline, chosen when the program starts: with
// PENTATRON_CLONES to the same bits (files without contraction, CMakeLists.txt), with
// PENTATRON_FUSED_CLONES to what fused multiply-add gives where there is one. GCC inlines nothing
// but always_inline functions and builtins into the latter. Sanitisers and resolvers do not mix.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__)
#define PENTATRON_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#define PENTATRON_FUSED_CLONES __attribute__((target_clones("avx512f", "arch=haswell", "default")))
#else
#define PENTATRON_CLONES
#define PENTATRON_FUSED_CLONES
#endif
#define PENTATRON_INLINE inline __attribute__((always_inline))

// Vectors of a function's own target never leave it: everything that takes or returns them is
// inlined.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi"
#endif

namespace pentatron::ops::rows {

constexpr int kLanes = 16;

// exp(x) to about 2 units in the last place: x = n ln 2 + r with |r| <= ln(2)/2, Taylor polynomial
// of degree 7 for exp(r) (its remainder is below 6e-9), times 2^n through the exponent bits.
// Saturates at exp(88) above; is 0 below -87. NaN stays NaN.
PENTATRON_INLINE float exp_of(float x) {
  constexpr float kLog2E = 1.44269504f;
  constexpr float kLn2High = 0.693359375f;  // 10 bits: n * kLn2High is exact
  constexpr float kLn2Low = -2.12194440e-4f;
  constexpr float kRoundMagic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const float clamped = x > 88.0f ? 88.0f : (x < -87.0f ? -87.0f : x);
  const float shifted = clamped * kLog2E + kRoundMagic;
  const float n = shifted - kRoundMagic;
  const float r = (clamped - n * kLn2High) - n * kLn2Low;
  float p = 1.0f / 5040.0f;
  p = p * r + 1.0f / 720.0f;
  p = p * r + 1.0f / 120.0f;
  p = p * r + 1.0f / 24.0f;
  p = p * r + 1.0f / 6.0f;
  p = p * r + 0.5f;
  p = (p * r) * r + r + 1.0f;
  const std::uint32_t exponent = (__builtin_bit_cast(std::uint32_t, shifted) -
                                  __builtin_bit_cast(std::uint32_t, kRoundMagic) + 127u)
                                 << 23;
  const float value = p * __builtin_bit_cast(float, exponent);
  return x < -87.0f ? 0.0f : value;
}
PENTATRON_INLINE double exp_of(double x) { return std::exp(x); }

// 1 / (1 + exp(-x)).
template <typename C>
PENTATRON_INLINE C sigmoid_of(C x) {
  return C(1) / (C(1) + exp_of(-x));
}

// One value a lane: a vector register of any width, which arrays are not always kept in.
template <typename C>
struct LaneVector {
  using Type __attribute__((vector_size(kLanes * sizeof(C)))) = C;
};
template <typename C>
using Lanes = typename LaneVector<C>::Type;
template <typename C>
PENTATRON_INLINE Lanes<C> load_lanes(const C* x) {
  Lanes<C> lanes;
  __builtin_memcpy(&lanes, x, sizeof(lanes));
  return lanes;
}

// One value of all lanes, halves onto each other: a chain of 16 steps would take longer than a
// short row.
template <int kHalf = kLanes / 2, typename C, typename F>
PENTATRON_INLINE void fold_lanes(C* values, F join) {
  for (int lane = 0; lane < kHalf; ++lane) {
    values[lane] = join(values[lane], values[lane + kHalf]);
  }
  if constexpr (kHalf > 1) fold_lanes<kHalf / 2>(values, join);
}
template <typename C, typename F>
PENTATRON_INLINE C fold_lanes(const Lanes<C>& lanes, F join) {
  C values[kLanes];
  __builtin_memcpy(values, &lanes, sizeof(values));
  fold_lanes(values, join);
  return values[0];
}
template <typename C>
PENTATRON_INLINE C add_lanes(const Lanes<C>& lanes) {
  return fold_lanes<C>(
      lanes, [](C a, C b) __attribute__((always_inline)) { return a + b; });
}

// Sum of term(i) over 16 lanes.
template <typename C, typename F>
PENTATRON_INLINE C lane_sum(std::int64_t n, F term) {
  C lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += term(i + lane);
  }
  for (int lane = 0; i < n; ++i, ++lane) lanes[lane] += term(i);
  return add_lanes<C>(load_lanes(lanes));
}

}  // namespace pentatron::ops::rows
