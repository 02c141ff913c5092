// SPDX-License-Identifier: Apache-2.0
#include "pentatron/base/philox.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <set>
#include <vector>

namespace pentatron {
namespace {

void expect_words(PhiloxWords got, PhiloxWords expected) {
  for (int i = 0; i < 4; ++i) EXPECT_EQ(got.v[i], expected.v[i]) << i;
}

TEST(BasePhilox, KnownAnswers) {
  // The vectors that the authors' Random123 distribution publishes for philox4x32-10.
  expect_words(philox4x32_10({{0, 0, 0, 0}}, {{0, 0}}),
               {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}});
  constexpr std::uint32_t kOnes = 0xffffffff;
  expect_words(philox4x32_10({{kOnes, kOnes, kOnes, kOnes}}, {{kOnes, kOnes}}),
               {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}});
  expect_words(
      philox4x32_10({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, {{0xa4093822, 0x299f31d0}}),
      {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}});
}

TEST(BasePhilox, SeedStreamAndIndexFillKeyAndCounter) {
  expect_words(philox_words(0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88),
               {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}});
}

TEST(BasePhilox, DrawsAreTheHalvesInOrder) {
  const PhiloxDraws draws = philox_draws({{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}});
  const std::uint16_t expected[8] = {0xe8d5, 0x6627, 0xc58d, 0xe169,
                                     0xac4c, 0xbc57, 0xdbd8, 0x9b00};
  for (int i = 0; i < 8; ++i) EXPECT_EQ(draws.v[i], expected[i]);
}

TEST(BasePhilox, UnitDoublesUseFiftyThreeBits) {
  EXPECT_EQ(philox_unit_double(0, 0), 0.0);
  EXPECT_EQ(philox_unit_double(0, 0x7ff), 0.0);
  EXPECT_EQ(philox_unit_double(0, 0x800), std::ldexp(1.0, -53));
  EXPECT_EQ(philox_unit_double(0x80000000, 0), 0.5);
  EXPECT_EQ(philox_unit_double(0xffffffff, 0xffffffff), 1.0 - std::ldexp(1.0, -53));
}

TEST(BasePhilox, MomentsOfUniformAndNormal) {
  constexpr int kCount = 200'000;
  double uniform_sum = 0;
  double sums[5] = {};
  int beyond_two = 0;
  for (int i = 0; i < kCount; ++i) {
    const auto index = static_cast<std::uint64_t>(i);
    const double u = philox_uniform(1234, fnv1a64("u"), index);
    ASSERT_TRUE(u >= 0 && u < 1);
    uniform_sum += u;
    const double z = philox_normal(1234, fnv1a64("z"), index);
    ASSERT_TRUE(std::isfinite(z));
    double power = 1;
    for (double& sum : sums) {
      sum += power;
      power *= z;
    }
    beyond_two += std::abs(z) > 2 ? 1 : 0;
  }
  // Five standard errors each.
  const double root = std::sqrt(static_cast<double>(kCount));
  EXPECT_NEAR(uniform_sum / kCount, 0.5, 5 * std::sqrt(1.0 / 12) / root);
  EXPECT_NEAR(sums[1] / kCount, 0, 5 / root);
  EXPECT_NEAR(sums[2] / kCount, 1, 5 * std::sqrt(2.0) / root);
  EXPECT_NEAR(sums[3] / kCount, 0, 5 * std::sqrt(15.0) / root);
  EXPECT_NEAR(sums[4] / kCount, 3, 5 * std::sqrt(96.0) / root);
  EXPECT_NEAR(static_cast<double>(beyond_two) / kCount, 0.0455, 5 * 0.2084 / root);
}

TEST(BasePhilox, KeysAreIndependentOfNeighbours) {
  std::set<double> seen;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    for (const std::uint64_t high : {0ULL, 1ULL << 32}) {
      for (std::uint64_t index = 0; index < 50; ++index) {
        seen.insert(philox_uniform(seed + high, 7, index));
        seen.insert(philox_uniform(seed, 8 + high, index + 1000));
      }
    }
  }
  EXPECT_EQ(seen.size(), 4U * 2 * 50 * 2);
}

TEST(BasePhilox, NameHash) {
  // Published FNV-1a test values.
  static_assert(fnv1a64("") == 0xcbf29ce484222325);
  static_assert(fnv1a64("a") == 0xaf63dc4c8601ec8c);
  static_assert(fnv1a64("foobar") == 0x85944171f73967e8);
  EXPECT_NE(fnv1a64("layers.1.weight"), fnv1a64("layers.2.weight"));
}

// Against the host's mathematical library: within a few units in the last place everywhere.
TEST(KeyedMath, LogarithmAndCosineAreAccurate) {
  constexpr double kUnit = 2.3e-16;
  std::vector<double> draws;
  for (std::uint64_t i = 0; i < 100'000; ++i) draws.push_back(1.0 - philox_uniform(5, 6, i));
  for (int power = 1; power <= 53; ++power) {
    draws.push_back(std::ldexp(1.0, -power));
    draws.push_back(1.0 - std::ldexp(1.0, -power));
  }
  for (const double x : draws) {
    ASSERT_NEAR(keyed_math::log(x), std::log(x), 2 * kUnit * std::abs(std::log(x))) << x;
    const double u = 1.0 - x;
    const auto truth = static_cast<double>(std::cos(2 * std::numbers::pi_v<long double> * u));
    ASSERT_NEAR(keyed_math::cos_turns(u), truth, 2 * kUnit) << u;
  }
  EXPECT_EQ(keyed_math::log(1.0), 0.0);
  for (const auto& [u, value] : {std::pair{0.0, 1.0}, {0.25, 0.0}, {0.5, -1.0}, {0.75, 0.0}}) {
    EXPECT_EQ(keyed_math::cos_turns(u), value);
  }
}

// The bits on which devices and hosts must agree, computed with 60 digits and rounded.
TEST(KeyedMath, KnownBits) {
  EXPECT_EQ(keyed_math::log(0.5), -0x1.62e42fefa39efp-1);
  EXPECT_NEAR(keyed_math::cos_turns(0.125), 0x1.6a09e667f3bcdp-1, 1.2e-16);
}

}  // namespace
}  // namespace pentatron
