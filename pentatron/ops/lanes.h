// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "pentatron/ops/row_math.h"

// Sixteen numbers side by side in vector registers of kBytes, so that what comes out does not
// depend on how wide these are. GCC keeps the parts in registers only if the loops over them are
// unrolled early, hence the pragmas; and it takes comparisons of vectors that are wider than the
// registers apart into single numbers, hence parts of the registers' own width.
namespace pentatron::ops::rows {

template <typename C, int kBytes>
struct Lanes {
  using Part __attribute__((vector_size(kBytes))) = C;
  static constexpr int kWidth = kBytes / static_cast<int>(sizeof(C)), kParts = kLanes / kWidth;
  Part part[kParts];
};

// f(part) of each part, and of the parts of two.
template <typename C, int kBytes, typename F>
PENTATRON_INLINE Lanes<C, kBytes> map(const Lanes<C, kBytes>& x, F f) {
  Lanes<C, kBytes> y;
#pragma GCC unroll 16
  for (int i = 0; i < Lanes<C, kBytes>::kParts; ++i) y.part[i] = f(x.part[i]);
  return y;
}
template <typename C, int kBytes, typename F>
PENTATRON_INLINE Lanes<C, kBytes> zip(const Lanes<C, kBytes>& x, const Lanes<C, kBytes>& y, F f) {
  Lanes<C, kBytes> z;
#pragma GCC unroll 16
  for (int i = 0; i < Lanes<C, kBytes>::kParts; ++i) z.part[i] = f(x.part[i], y.part[i]);
  return z;
}

template <int kBytes, typename C>
PENTATRON_INLINE Lanes<C, kBytes> load_lanes(const C* x) {
  using L = Lanes<C, kBytes>;
  L lanes;
#pragma GCC unroll 16
  for (int i = 0; i < L::kParts; ++i) {
    __builtin_memcpy(&lanes.part[i], x + i * L::kWidth, kBytes);
  }
  return lanes;
}
template <typename C, int kBytes>
PENTATRON_INLINE void store_lanes(C* x, const Lanes<C, kBytes>& lanes) {
  using L = Lanes<C, kBytes>;
#pragma GCC unroll 16
  for (int i = 0; i < L::kParts; ++i) {
    __builtin_memcpy(x + i * L::kWidth, &lanes.part[i], kBytes);
  }
}
template <int kBytes, typename C>
PENTATRON_INLINE Lanes<C, kBytes> all_lanes(C value) {
  using L = Lanes<C, kBytes>;
  L lanes;
#pragma GCC unroll 16
  for (int i = 0; i < L::kParts; ++i) lanes.part[i] = typename L::Part{} + value;
  return lanes;
}

template <typename C, int kBytes>
PENTATRON_INLINE Lanes<C, kBytes> operator+(const Lanes<C, kBytes>& x, const Lanes<C, kBytes>& y) {
  return zip(x, y, [](auto a, auto b) PENTATRON_LAMBDA { return a + b; });
}
template <typename C, int kBytes>
PENTATRON_INLINE Lanes<C, kBytes> operator*(const Lanes<C, kBytes>& x, const Lanes<C, kBytes>& y) {
  return zip(x, y, [](auto a, auto b) PENTATRON_LAMBDA { return a * b; });
}
template <typename C, int kBytes>
PENTATRON_INLINE Lanes<C, kBytes> operator-(const Lanes<C, kBytes>& x, C y) {
  return map(x, [=](auto a) PENTATRON_LAMBDA { return a - y; });
}

// The larger ones; a NaN of y counts for nothing.
template <typename C, int kBytes>
PENTATRON_INLINE Lanes<C, kBytes> max_lanes(const Lanes<C, kBytes>& x, const Lanes<C, kBytes>& y) {
  return zip(x, y, [](auto a, auto b) PENTATRON_LAMBDA { return b > a ? b : a; });
}

// Integers as wide as C, for masks.
template <typename C>
struct IntegerOf;
template <>
struct IntegerOf<float> {
  using Type = std::int32_t;
};
template <>
struct IntegerOf<double> {
  using Type = std::int64_t;
};

// The lanes of x that are among the first n of the row, `other` in the rest.
template <typename C, int kBytes>
PENTATRON_INLINE Lanes<C, kBytes> first_lanes(std::int64_t n, const Lanes<C, kBytes>& x, C other) {
  using L = Lanes<C, kBytes>;
  using Integer = typename IntegerOf<C>::Type;
  using Integers __attribute__((vector_size(kBytes))) = Integer;
  static constexpr Integer kNumbers[kLanes] = {0, 1, 2,  3,  4,  5,  6,  7,
                                               8, 9, 10, 11, 12, 13, 14, 15};
  const Integers count = Integers{} + static_cast<Integer>(n < kLanes ? n : kLanes);
  const typename L::Part others = typename L::Part{} + other;
  L y;
#pragma GCC unroll 16
  for (int i = 0; i < L::kParts; ++i) {
    Integers numbers;
    __builtin_memcpy(&numbers, kNumbers + i * L::kWidth, kBytes);
    y.part[i] = numbers < count ? x.part[i] : others;
  }
  return y;
}

// x[0 .. n) and then `filler`; reads nothing behind x + n.
template <int kBytes, typename C>
PENTATRON_INLINE Lanes<C, kBytes> fill_lanes(const C* x, std::int64_t n, C filler) {
  C values[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) values[lane] = lane < n ? x[lane] : filler;
  return load_lanes<kBytes>(values);
}

// One value of all lanes, halves onto each other: a chain of 16 steps would take longer than a
// short row.
template <typename C, int kBytes, typename F>
PENTATRON_INLINE C fold_lanes(const Lanes<C, kBytes>& lanes, F join) {
  C values[kLanes];
  store_lanes(values, lanes);
  fold_lanes(values, join);
  return values[0];
}
template <typename C, int kBytes>
PENTATRON_INLINE C add_lanes(const Lanes<C, kBytes>& lanes) {
  return fold_lanes(lanes, [](C a, C b) PENTATRON_LAMBDA { return a + b; });
}
template <typename C, int kBytes>
PENTATRON_INLINE C largest_lane(const Lanes<C, kBytes>& lanes) {
  return fold_lanes(lanes, [](C a, C b) PENTATRON_LAMBDA { return b > a ? b : a; });
}

template <typename C, int kBytes>
PENTATRON_INLINE Lanes<C, kBytes> exp_lanes(const Lanes<C, kBytes>& x) {
  using Part = typename Lanes<C, kBytes>::Part;
  return map(x, [](Part part) PENTATRON_LAMBDA { return exp_part<C, Part>(part); });
}

}  // namespace pentatron::ops::rows
