// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "pentatron/base/error.h"
#include "pentatron/base/philox.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/random.h"

namespace pentatron {
namespace {

Tensor round_keyed(const Tensor& in, std::uint64_t seed, std::int64_t step, std::int64_t bucket,
                   std::int64_t first_element) {
  Tensor out = tensor::empty(in.sizes(), DType::BFloat16);
  tensor::stochastic_round_bf16_keyed(out, in, seed, step, bucket, first_element);
  return out;
}

// Values over many magnitudes and both signs, most of them no bf16 numbers.
Tensor spread_values(std::int64_t count) {
  return tensor::arange(count, DType::Double)
      .mul(0.37)
      .sin()
      .mul(3.3)
      .exp()
      .sub(1.0)
      .to(DType::Float);
}

std::uint16_t bits_at(const Tensor& bf16, std::int64_t i) {
  return static_cast<const std::uint16_t*>(bf16.const_data_ptr())[i];
}

// The definition, element by element: the dropped half plus a 16-bit draw carries or does not.
TEST(StochasticRounding, EqualsItsDefinition) {
  constexpr std::uint64_t kSeed = 0x123456789abcdef0;
  constexpr std::int64_t kStep = (std::int64_t{5} << 32) + 3;
  constexpr std::int64_t kBucket = 7;
  constexpr std::int64_t kFirst = 1005;
  const Tensor in = spread_values(300);
  const Tensor out = round_keyed(in, kSeed, kStep, kBucket, kFirst);
  const RngSite site = make_site(kSeed, "stochastic_rounding");
  int carried = 0;
  for (std::int64_t i = 0; i < in.numel(); ++i) {
    const std::int64_t element = kFirst + i;
    const PhiloxWords words = philox4x32_10(
        {{static_cast<std::uint32_t>(element / 8), kBucket, 3, 5}},
        {{static_cast<std::uint32_t>(site.key), static_cast<std::uint32_t>(site.key >> 32)}});
    const std::uint32_t draw = (words.v[(element % 8) / 2] >> (16 * (element % 2))) & 0xffff;
    const auto bits = std::bit_cast<std::uint32_t>(in.const_data_ptr<float>()[i]);
    ASSERT_EQ(bits_at(out, i), (bits + draw) >> 16) << i;
    carried += bits_at(out, i) != bits >> 16 ? 1 : 0;
  }
  EXPECT_GT(carried, 100);
  EXPECT_LT(carried, 200);
}

TEST(StochasticRounding, DoesNotDependOnTheCutAndEveryKeyCounts) {
  const Tensor in = spread_values(10007);
  const Tensor whole = round_keyed(in, 1, 2, 3, 0);
  for (const std::int64_t at : {1, 8, 1003, 9999}) {
    const std::int64_t length = in.numel() - at;
    EXPECT_TRUE(
        round_keyed(in.narrow(0, at, length), 1, 2, 3, at).equal(whole.narrow(0, at, length)));
  }
  EXPECT_TRUE(round_keyed(in, 1, 2, 3, 0).equal(whole));
  EXPECT_FALSE(round_keyed(in, 2, 2, 3, 0).equal(whole));
  EXPECT_FALSE(round_keyed(in, 1, 3, 3, 0).equal(whole));
  EXPECT_FALSE(round_keyed(in, 1, 2, 4, 0).equal(whole));
  EXPECT_FALSE(round_keyed(in, 1, 2, 3, 1).equal(whole));
}

// Between 1 and 1 + 2^-7 a bf16 has nothing: the share that goes up is the distance, and the mean
// over elements, and over steps, is the value.
TEST(StochasticRounding, IsUnbiased) {
  constexpr std::int64_t kCount = 200'000;
  for (const double share : {0.0, 0.1, 0.5, 0.93}) {
    for (const double sign : {1.0, -1.0}) {
      const double value = sign * (1 + share / 128);
      const double bound = 5 * std::sqrt(share * (1 - share) / kCount) / 128 + 1e-7;
      const Tensor in = tensor::full({kCount}, value, DType::Float);
      EXPECT_NEAR(round_keyed(in, 9, 0, 0, 0).to(DType::Double).mean().item<double>(), value,
                  bound);
      double over_steps = 0;
      const Tensor one = tensor::full({1}, value, DType::Float);
      for (std::int64_t step = 0; step < 20'000; ++step) {
        over_steps += round_keyed(one, 9, step, 1, 77).to(DType::Double).item<double>();
      }
      EXPECT_NEAR(over_steps / 20'000, value, bound * std::sqrt(kCount / 20'000.0));
    }
  }
}

TEST(StochasticRounding, KeepsWhatABf16HoldsAndWhatIsNoNumber) {
  const Tensor exact = spread_values(1000).to(DType::BFloat16);
  EXPECT_TRUE(round_keyed(exact.to(DType::Float), 4, 5, 6, 7).equal(exact));
  constexpr float kInf = std::numeric_limits<float>::infinity();
  // A NaN whose set bits all lie in the dropped half must not become infinite.
  const float low_nan = std::bit_cast<float>(std::uint32_t{0x7f800001});
  const Tensor special = tensor::from_vector(std::vector<float>{kInf, -kInf, low_nan, 0.0F, -0.0F});
  for (std::int64_t step = 0; step < 50; ++step) {
    const Tensor out = round_keyed(special, 4, step, 6, 0);
    EXPECT_EQ(bits_at(out, 0), 0x7f80);
    EXPECT_EQ(bits_at(out, 1), 0xff80);
    EXPECT_TRUE(std::isnan(out[2].item<float>()));
    EXPECT_EQ(bits_at(out, 3), 0);
    EXPECT_EQ(bits_at(out, 4), 0x8000);
  }
}

TEST(StochasticRounding, RefusesOtherTensorsAndKeys) {
  const Tensor in = spread_values(16);
  const Tensor out = tensor::empty({16}, DType::BFloat16);
  EXPECT_THROW(tensor::stochastic_round_bf16_keyed(out, in.to(DType::Double), 1, 1, 1, 0), Error);
  EXPECT_THROW(tensor::stochastic_round_bf16_keyed(in, in, 1, 1, 1, 0), Error);
  EXPECT_THROW(tensor::stochastic_round_bf16_keyed(out.narrow(0, 0, 8), in, 1, 1, 1, 0), Error);
  EXPECT_THROW(tensor::stochastic_round_bf16_keyed(out, in, 1, -1, 1, 0), Error);
  EXPECT_THROW(tensor::stochastic_round_bf16_keyed(out, in, 1, 1, std::int64_t{1} << 32, 0), Error);
  EXPECT_THROW(tensor::stochastic_round_bf16_keyed(out, in, 1, 1, 1, std::int64_t{1} << 36), Error);
}

}  // namespace
}  // namespace pentatron
