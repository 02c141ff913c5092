// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <numbers>

#if defined(__CUDACC__)
#define PENTATRON_HD __host__ __device__
#else
#define PENTATRON_HD
#endif

// Logarithm and cosine with the same bits on host and device: built from single IEEE operations,
// each rounded, which no compiler may join (hosts with fused multiply-add compile users of this
// header with -ffp-contract=off). Errors are a few units in the last place.
namespace pentatron::keyed_math {

PENTATRON_HD inline double product(double a, double b) {
#if defined(__CUDA_ARCH__)
  return __dmul_rn(a, b);
#else
  return a * b;
#endif
}
PENTATRON_HD inline double sum(double a, double b) {
#if defined(__CUDA_ARCH__)
  return __dadd_rn(a, b);
#else
  return a + b;
#endif
}
PENTATRON_HD inline double quotient(double a, double b) {
#if defined(__CUDA_ARCH__)
  return __ddiv_rn(a, b);
#else
  return a / b;
#endif
}
PENTATRON_HD inline double root(double a) {
#if defined(__CUDA_ARCH__)
  return __dsqrt_rn(a);
#else
  return std::sqrt(a);
#endif
}

// A double and its bits; nvcc compiles std::bit_cast for the host alone.
PENTATRON_HD inline std::uint64_t bits_of(double x) {
#if defined(__CUDA_ARCH__)
  return static_cast<std::uint64_t>(__double_as_longlong(x));
#else
  return std::bit_cast<std::uint64_t>(x);
#endif
}
PENTATRON_HD inline double from_bits(std::uint64_t bits) {
#if defined(__CUDA_ARCH__)
  return __longlong_as_double(static_cast<long long>(bits));
#else
  return std::bit_cast<double>(bits);
#endif
}

// Natural logarithm of a normal x > 0. With x = 2^k f and f in [1/sqrt 2, sqrt 2):
// k ln 2 + 2 artanh((f - 1) / (f + 1)), the latter by its series, whose terms fall by 34 at least.
PENTATRON_HD inline double log(double x) {
  constexpr double kOdd[] = {1.0 / 3.0,  1.0 / 5.0,  1.0 / 7.0,  1.0 / 9.0,  1.0 / 11.0,
                             1.0 / 13.0, 1.0 / 15.0, 1.0 / 17.0, 1.0 / 19.0, 1.0 / 21.0};
  constexpr int kTerms = 10;
  // ln 2 in two parts, the first short enough that its products with k are exact.
  constexpr double kHigh = 0x1.62e42feep-1;
  constexpr double kLow = 0x1.a39ef35793c76p-33;
  constexpr std::uint64_t kFraction = (std::uint64_t{1} << 52) - 1;
  constexpr std::uint64_t kOne = std::uint64_t{1023} << 52;
  const std::uint64_t bits = bits_of(x);
  auto k = static_cast<std::int64_t>(bits >> 52) - 1023;
  double f = from_bits((bits & kFraction) | kOne);  // [1, 2)
  if (f > std::numbers::sqrt2) {
    f = product(f, 0.5);
    ++k;
  }
  const double s = quotient(sum(f, -1.0), sum(f, 1.0));
  const double z = product(s, s);
  double series = 0.0;
  for (int term = kTerms; term-- > 0;) series = product(z, sum(series, kOdd[term]));
  const double log_f = product(2.0, sum(s, product(s, series)));
  const auto whole = static_cast<double>(k);
  return sum(product(whole, kHigh), sum(log_f, product(whole, kLow)));
}

// cos(2 pi u) for u in [0, 1): quarter turns are exact, the rest is a series within 45 degrees.
PENTATRON_HD inline double cos_turns(double u) {
  // 1 / (n (n + 1)) for n = 1, 3, ... and n = 2, 4, ...
  constexpr double kCosine[] = {1.0 / 2.0,  1.0 / 12.0,  1.0 / 30.0,  1.0 / 56.0,
                                1.0 / 90.0, 1.0 / 132.0, 1.0 / 182.0, 1.0 / 240.0};
  constexpr double kSine[] = {1.0 / 6.0,   1.0 / 20.0,  1.0 / 42.0,  1.0 / 72.0,
                              1.0 / 110.0, 1.0 / 156.0, 1.0 / 210.0, 1.0 / 272.0};
  constexpr int kTerms = 8;
  constexpr double kQuarter = std::numbers::pi / 2.0;
  const double quarters = product(u, 4.0);
  const int nearest = static_cast<int>(sum(quarters, 0.5));
  const double angle = product(sum(quarters, -static_cast<double>(nearest)), kQuarter);
  const double square = product(angle, angle);
  // cos a = 1 - a^2/2 (1 - a^2/12 (...)), sin a = a (1 - a^2/6 (1 - a^2/20 (...))).
  const bool sine = nearest % 2 != 0;
  double series = 1.0;
  for (int term = kTerms; term-- > 0;) {
    const double factor = product(square, sine ? kSine[term] : kCosine[term]);
    series = sum(1.0, -product(factor, series));
  }
  const double value = sine ? product(angle, series) : series;
  const int quadrant = nearest % 4;
  return quadrant == 1 || quadrant == 2 ? -value : value;
}

}  // namespace pentatron::keyed_math
