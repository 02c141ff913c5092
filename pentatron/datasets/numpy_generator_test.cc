// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/numpy_generator.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "pentatron/base/error.h"

// All numbers are NumPy's own (2.4.6).
namespace pentatron::datasets {
namespace {

TEST(NumpyGenerator, RawDrawsOfPcg64) {
  NumpyGenerator zero(0);
  for (const std::uint64_t expected :
       {0xa30febcfd9c2825fU, 0x4510bdf882d9d721U, 0x0a7d3da94ecde8b8U, 0x043b27b61342f01dU}) {
    EXPECT_EQ(zero.next64(), expected);
  }
  NumpyGenerator two_words((std::uint64_t{1} << 40) + 7);
  EXPECT_EQ(two_words.next64(), 0xd46e9e2034de21aaU);
  EXPECT_EQ(two_words.next64(), 0x415badc99c087675U);
}

TEST(NumpyGenerator, LowHalfFirst) {
  NumpyGenerator random(0);
  EXPECT_EQ(random.next32(), 0xd9c2825fU);
  EXPECT_EQ(random.next64(), 0x4510bdf882d9d721U);  // leaves the kept half alone
  EXPECT_EQ(random.next32(), 0xa30febcfU);
  EXPECT_EQ(random.next32(), 0x4ecde8b8U);
}

// A width of 3e9 refuses three draws of ten.
TEST(NumpyGenerator, IntegersRejectAsNumpy) {
  NumpyGenerator wide(0);
  for (const std::int64_t expected :
       std::vector<std::int64_t>{2551872677, 1910885061, 1533409439, 809360140, 923488268,
                                 122920571, 225720425, 49582906}) {
    EXPECT_EQ(wide.integer(0, 3'000'000'000), expected);
  }
  NumpyGenerator again(0);
  std::int64_t sum = 0;
  std::int64_t last = 0;
  for (int i = 0; i < 1000; ++i) sum += last = again.integer(0, 3'000'000'000);
  EXPECT_EQ(sum, 1'536'051'465'424);
  EXPECT_EQ(last, 261'542'348);
  NumpyGenerator shifted((std::uint64_t{1} << 40) + 7);
  for (const std::int64_t expected : {206514453, 829812890, 609504128, 255305154}) {
    EXPECT_EQ(shifted.integer(-5, 1'000'000'000), expected);
  }
}

TEST(NumpyGenerator, OneValueDrawsNothingAndBadRangesAreRefused) {
  NumpyGenerator random(0);
  EXPECT_EQ(random.integer(-3, -2), -3);
  EXPECT_EQ(random.next64(), 0xa30febcfd9c2825fU);
  EXPECT_THROW((void)random.integer(4, 4), Error);
  EXPECT_THROW((void)random.integer(5, 4), Error);
  EXPECT_THROW((void)random.integer(0, std::int64_t{1} << 32), Error);
}

}  // namespace
}  // namespace pentatron::datasets
