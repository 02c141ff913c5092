// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "pentatron/base/error.h"
#include "pentatron/ops/test_fp8.h"

namespace pentatron::ops {
namespace {

TEST(Fp8Linear, StaysWithinTheBoundOfItsFormats) {
  for (const std::int64_t rows : {0, 1, 37, 64}) testing::expect_fp8_linear(Device("cpu"), rows);
}

TEST(Fp8Linear, MakesWeightGradientsInFp8) {
  for (const std::int64_t rows : {0, 1, 37, 64}) {
    testing::expect_fp8_linear(kCpu, rows, {}, {}, /*weight_gradient=*/true);
  }
}

TEST(Fp8Linear, BothOrdersHoldTheSameValues) {
  for (const std::int64_t rows : {1, 16, 37}) {
    testing::expect_fp8_orders(kCpu, testing::normal({rows, 48}, 1).to(DType::BFloat16),
                               tensor::Fp8Format::kE4M3);
  }
}

// What is not a number must reach the gradients' check, not be clipped away.
TEST(Fp8Linear, KeepsInfinitiesAndNansVisible) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    const Tensor x = testing::normal({32, 32}, 1, DType::Float);
    x[3][5] = bad;
    const auto q = tensor::quantize_fp8(x, tensor::Fp8Format::kE4M3);
    EXPECT_TRUE(std::isnan(tensor::dequantize_fp8(q, DType::Float)[3][5].item<float>())) << bad;
  }
}

// A scale for each row, for each 32 values of a row, and for square blocks of weights.
TEST(Fp8Linear, TakesScalesOfBlocks) {
  for (const std::int64_t rows : {0, 1, 37}) {
    testing::expect_fp8_linear(kCpu, rows, {1, 0}, {1, 0});
    testing::expect_fp8_linear(kCpu, rows, {1, 32}, {32, 32});
    testing::expect_fp8_linear(kCpu, rows, {1, 32}, {});
  }
}

// Rows of very unequal size: under one scale the small ones vanish, under their own they do not.
TEST(Fp8Linear, ScalesOfBlocksKeepSmallRows) {
  const Tensor x = testing::normal({40, 70}, 1, DType::Float);
  x.narrow(0, 0, 8).mul_(1e7);
  const auto off = [&](tensor::ScaleBlock block) {
    const auto q = tensor::quantize_fp8(x, tensor::Fp8Format::kE4M3, block);
    const Tensor small = tensor::dequantize_fp8(q, DType::Float).narrow(0, 8, 32);
    return testing::distance(small, x.narrow(0, 8, 32));
  };
  EXPECT_GT(off({}), 0.9);
  EXPECT_LT(off({1, 0}), 0.04);
  EXPECT_LT(off({8, 16}), 0.04);
  EXPECT_LT(off({8, 0}), 0.04);
  EXPECT_GT(off({16, 16}), 0.3) << "the first block of rows holds large and small ones";
}

TEST(Fp8Linear, ProductsAreThoseOfTheHeldValues) { testing::expect_fp8_products(Device("cpu")); }

TEST(Fp8Linear, QuantisesToTheFormatsRange) {
  using tensor::Fp8Format;
  const Tensor x = tensor::from_vector(std::vector<float>{-3.0F, 1.5F, 0.0F, 0.375F});
  const auto q = tensor::quantize_fp8(x, Fp8Format::kE4M3);
  EXPECT_EQ(q.data.to(DType::Float)[0].item<float>(), -448.0F);
  EXPECT_EQ(q.scale.item<float>(), 3.0F * static_cast<float>(1.0 / 448.0));
  EXPECT_EQ(tensor::quantize_fp8(x, Fp8Format::kE5M2).data.to(DType::Float)[0].item<float>(),
            -57344.0F);
  const auto zeros = tensor::quantize_fp8(tensor::zeros({4}, DType::Float), Fp8Format::kE4M3);
  EXPECT_EQ(tensor::dequantize_fp8(zeros, DType::Float).abs().max().item<float>(), 0.0F);
}

TEST(Fp8Linear, RefusesWhatTheProductCannotTake) {
  using tensor::Fp8Format;
  const auto quantised = [](const Shape& shape, Fp8Format format) {
    return tensor::quantize_fp8(testing::normal(shape, 1, DType::Float), format);
  };
  const auto a = quantised({8, 32}, Fp8Format::kE5M2);
  EXPECT_THROW((void)tensor::fp8_matmul(a, quantised({24, 32}, Fp8Format::kE4M3), DType::Float),
               Error);
  EXPECT_THROW((void)tensor::fp8_matmul(quantised({8, 24}, Fp8Format::kE4M3),
                                        quantised({16, 24}, Fp8Format::kE4M3), DType::Float),
               Error);
  EXPECT_THROW((void)tensor::fp8_matmul(a, quantised({16, 32}, Fp8Format::kE5M2), DType::Float),
               Error);
  // Scales that are not those of the block.
  auto b =
      tensor::quantize_fp8(testing::normal({16, 32}, 1, DType::Float), Fp8Format::kE4M3, {1, 16});
  b.block = {1, 8};
  EXPECT_THROW((void)tensor::fp8_matmul(a, b, DType::Float), Error);
  EXPECT_THROW(
      (void)tensor::quantize_fp8(tensor::ones({8}, DType::Float), Fp8Format::kE4M3, {1, 4}), Error);
}

}  // namespace
}  // namespace pentatron::ops
