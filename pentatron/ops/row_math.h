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

// A product that is rounded before it is used, fused or not: differences of equal ones are zero.
#if defined(__GNUC__) && !defined(__clang__)
#define PENTATRON_ROUNDED(product) __builtin_assoc_barrier(product)
#else
#define PENTATRON_ROUNDED(product) (product)
#endif

// Vectors of a function's own target never leave it: everything that takes or returns them is
// inlined.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi"
#endif

namespace pentatron::ops::rows {

constexpr int kLanes = 16;

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
template <typename C>
PENTATRON_INLINE void store_lanes(C* x, const Lanes<C>& lanes) {
  __builtin_memcpy(x, &lanes, sizeof(lanes));
}
// f(x, lane) of each lane. For what is no arithmetic: GCC takes comparisons of vectors that are
// wider than the registers apart into single numbers, loops it does not.
template <typename C, typename F>
PENTATRON_INLINE Lanes<C> each_lane(const Lanes<C>& x, F f) {
  C values[kLanes];
  __builtin_memcpy(values, &x, sizeof(values));
  for (int lane = 0; lane < kLanes; ++lane) values[lane] = f(values[lane], lane);
  return load_lanes(values);
}

// exp(x) to about 2 units in the last place: x = n ln 2 + r with |r| <= ln(2)/2, Taylor polynomial
// of degree 7 for exp(r) (its remainder is below 6e-9), times 2^n through the exponent bits.
// Saturates at exp(88) above; is 0 below -87.7, where n is -127 and the bits of 2^n are those of 0.
// NaN stays NaN.
PENTATRON_INLINE float exp_of(float x) {
  constexpr float kLog2E = 1.44269504f;
  constexpr float kLn2High = 0.693359375f;  // 10 bits: n * kLn2High is exact
  constexpr float kLn2Low = -2.12194440e-4f;
  constexpr float kRoundMagic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  constexpr float kHighest = 88.0f, kLowest = -88.02f;
  constexpr std::uint32_t kBias = 127u - __builtin_bit_cast(std::uint32_t, kRoundMagic);
  // One instruction each, which hands on a NaN of its second operand.
  float clamped = x < kLowest ? kLowest : x;
  clamped = clamped > kHighest ? kHighest : clamped;
  const float shifted = clamped * kLog2E + kRoundMagic;
  const float n = shifted - kRoundMagic;
  const float r = (clamped - n * kLn2High) - n * kLn2Low;
  float p = r * (1.0f / 5040.0f) + 1.0f / 720.0f;
  p = p * r + 1.0f / 120.0f;
  p = p * r + 1.0f / 24.0f;
  p = p * r + 1.0f / 6.0f;
  p = p * r + 0.5f;
  p = (p * r) * r + r + 1.0f;
  const std::uint32_t power = (__builtin_bit_cast(std::uint32_t, shifted) + kBias) << 23;
  return p * __builtin_bit_cast(float, power);
}
PENTATRON_INLINE double exp_of(double x) { return std::exp(x); }
// Of a number or of each lane.
template <typename C>
PENTATRON_INLINE C exp_any(C x) {
  return exp_of(x);
}
template <typename C>
PENTATRON_INLINE Lanes<C> exp_any(const Lanes<C>& x) {
  return each_lane<C>(
      x, [](C value, int) __attribute__((always_inline)) { return exp_of(value); });
}

// 1 / (1 + exp(-x)).
template <typename C>
PENTATRON_INLINE C sigmoid_of(C x) {
  return C(1) / (C(1) + exp_of(-x));
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
