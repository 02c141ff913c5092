// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

// What the row kernels share: versions for several vector sets and an exponential that the
// vectoriser understands.

// PENTATRON_CLONES: one body, compiled for AVX-512, AVX2 and the baseline to the same bits (files
// without contraction, CMakeLists.txt), chosen when the program starts. Sanitisers and resolvers do
// not mix.
// PENTATRON_ROW_FUNCTION: a function `result name parameters` that returns name_body<kBytes>
// arguments, with kBytes the width of the vector registers; for the same three, with fused
// multiply-add where there is one. (A clone for "arch=haswell" would run on Haswell alone, and one
// cannot be asked for two features.) GCC inlines nothing but always_inline functions and builtins
// into these.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#if defined(__SANITIZE_ADDRESS__)
#define PENTATRON_CLONES
#else
#define PENTATRON_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#endif
#define PENTATRON_ROW_FUNCTION(result, name, parameters, arguments)              \
  namespace versions {                                                           \
  __attribute__((target("avx512f"))) static result name##_avx512 parameters {    \
    return name##_body<64> arguments;                                            \
  }                                                                              \
  __attribute__((target("avx2,fma"))) static result name##_avx2 parameters {     \
    return name##_body<32> arguments;                                            \
  }                                                                              \
  static result name##_baseline parameters { return name##_body<16> arguments; } \
  }                                                                              \
  result name parameters {                                                       \
    if (chosen_vector_bytes == 64) return versions::name##_avx512 arguments;     \
    if (chosen_vector_bytes == 32) return versions::name##_avx2 arguments;       \
    return versions::name##_baseline arguments;                                  \
  }
#else
#define PENTATRON_CLONES
// NOLINTBEGIN(bugprone-macro-parentheses): parts of a declaration, no values
#define PENTATRON_ROW_FUNCTION(result, name, parameters, arguments) \
  result name parameters { return name##_body<16> arguments; }
// NOLINTEND(bugprone-macro-parentheses)
#endif
#define PENTATRON_INLINE inline __attribute__((always_inline))
#define PENTATRON_LAMBDA __attribute__((always_inline))

// A product that is rounded before it is used, fused or not: differences of equal ones are zero.
#if defined(__GNUC__) && !defined(__clang__)
#define PENTATRON_ROUNDED(product) __builtin_assoc_barrier(product)
#else
#define PENTATRON_ROUNDED(product) (product)
#endif

namespace pentatron::ops::rows {

constexpr int kLanes = 16;

// Which version of the row functions runs; rows.h.
extern int chosen_vector_bytes;

// Unsigned integers in the place of floats: one, or a vector of them.
template <typename V>
struct BitsOf {
  using Type __attribute__((vector_size(sizeof(V)))) = std::uint32_t;
};
template <>
struct BitsOf<float> {
  using Type = std::uint32_t;
};

// exp(x) to about 2 units in the last place: x = n ln 2 + r with |r| <= ln(2)/2, Taylor polynomial
// of degree 7 for exp(r) (its remainder is below 6e-9), times 2^n through the exponent bits.
// Saturates at exp(88) above; is 0 below -87.7, where n is -127 and the bits of 2^n are those of 0.
// NaN stays NaN.
// Of a number or of a vector V of numbers C.
template <typename C, typename V>
PENTATRON_INLINE V exp_part(V x) {
  if constexpr (sizeof(C) == sizeof(double)) {
    if constexpr (sizeof(V) == sizeof(C)) {
      return std::exp(x);
    } else {
      for (std::size_t i = 0; i < sizeof(V) / sizeof(C); ++i) x[i] = std::exp(x[i]);
      return x;
    }
  } else {
    using Bits = typename BitsOf<V>::Type;
    constexpr float kLog2E = 1.44269504f;
    constexpr float kLn2High = 0.693359375f;  // 10 bits: n * kLn2High is exact
    constexpr float kLn2Low = -2.12194440e-4f;
    constexpr float kRoundMagic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
    constexpr std::uint32_t kBias = 127u - __builtin_bit_cast(std::uint32_t, kRoundMagic);
    const V highest = V{} + 88.0f, lowest = V{} - 88.02f;
    // One instruction each, which hands on a NaN of its second operand.
    V clamped = x < lowest ? lowest : x;
    clamped = clamped > highest ? highest : clamped;
    const V shifted = clamped * kLog2E + kRoundMagic;
    const V n = shifted - kRoundMagic;
    const V r = (clamped - n * kLn2High) - n * kLn2Low;
    V p = r * (1.0f / 5040.0f) + 1.0f / 720.0f;
    p = p * r + 1.0f / 120.0f;
    p = p * r + 1.0f / 24.0f;
    p = p * r + 1.0f / 6.0f;
    p = p * r + 0.5f;
    p = (p * r) * r + r + 1.0f;
    const Bits power = (__builtin_bit_cast(Bits, shifted) + kBias) << 23;
    return p * __builtin_bit_cast(V, power);
  }
}
template <typename C>
PENTATRON_INLINE C exp_of(C x) {
  return exp_part<C, C>(x);
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
// Sum of term(i) over 16 lanes.
template <typename C, typename F>
PENTATRON_INLINE C lane_sum(std::int64_t n, F term) {
  C lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += term(i + lane);
  }
  for (int lane = 0; i < n; ++i, ++lane) lanes[lane] += term(i);
  fold_lanes(lanes, [](C a, C b) PENTATRON_LAMBDA { return a + b; });
  return lanes[0];
}

}  // namespace pentatron::ops::rows
