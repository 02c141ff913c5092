// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
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

// The largest of a block, in fp32: without the mantissa of 448 / largest, as TransformerEngine.
float inverse_by_hand(float largest) {
  return std::min(std::ldexp(1.0F, std::ilogb(448.0F / largest)), 0x1p126F);
}

TEST(Fp8Linear, ScalesOfBlocksArePowersOfTwo) {
  using tensor::kFp8Block;
  std::vector<float> largest{448, 449, 447.99F, 224, 1, 3.5F, 1e-30F, 3e38F, 0x1p-140F};
  const auto blocks = static_cast<std::int64_t>(largest.size());
  const Tensor x = tensor::zeros({1, blocks * kFp8Block}, DType::Float);
  for (std::int64_t b = 0; b < blocks; ++b) {
    x[0][b * kFp8Block + b] = -largest[static_cast<std::size_t>(b)];
  }
  const auto q = tensor::quantize_fp8(x, tensor::Fp8Format::kE4M3, tensor::kActivationBlock);
  ASSERT_EQ(tensor::shape_of(q.scale), (Shape{1, blocks}));
  for (std::int64_t b = 0; b < blocks; ++b) {
    const float most = largest[static_cast<std::size_t>(b)];
    EXPECT_EQ(1.0F / q.scale[0][b].item<float>(), inverse_by_hand(most)) << most;
  }
  EXPECT_EQ(q.data.to(DType::Float)[0][0].item<float>(), -448.0F);
  EXPECT_EQ(q.scale[0][1].item<float>(), 2.0F);  // 449
  const Tensor nothing = tensor::zeros({2, kFp8Block}, DType::Float);
  nothing[1][7] = std::numeric_limits<float>::infinity();
  const auto edges =
      tensor::quantize_fp8(nothing, tensor::Fp8Format::kE4M3, tensor::kActivationBlock);
  EXPECT_EQ(edges.scale[0][0].item<float>(), std::numeric_limits<float>::min());
  EXPECT_EQ(tensor::dequantize_fp8(edges, DType::Float)[0].abs().max().item<float>(), 0);
  EXPECT_TRUE(std::isnan(tensor::dequantize_fp8(edges, DType::Float)[1][7].item<float>()));
}

// --fp8-recipe blockwise: what one block holds is quantised as if it stood alone, in either order.
TEST(Fp8Linear, Blockwise) {
  for (const auto format : {tensor::Fp8Format::kE4M3, tensor::Fp8Format::kE5M2}) {
    const Tensor x = testing::normal({300, 272}, 1).mul(1e-3).to(DType::BFloat16);
    for (const auto block : {tensor::kActivationBlock, tensor::kWeightBlock}) {
      testing::expect_fp8_block_orders(kCpu, x, format, block, "CPU");
    }
    const auto got = tensor::fp8_orders(
        x, {.format = format, .block = tensor::kActivationBlock, .columns = true});
    const Tensor piece = x.narrow(0, 128, 128).narrow(1, 5, 1).t();
    const auto alone = tensor::quantize_fp8(piece, format, tensor::kActivationBlock);
    const auto part = got.columns_km.data.narrow(0, 5, 1).narrow(1, 128, 128);
    EXPECT_TRUE(part.to(DType::Float).equal(alone.data.to(DType::Float)));
    EXPECT_TRUE(got.columns_km.scale[5][1].equal(alone.scale[0][0]));
    const auto wide = tensor::quantize_fp8(x.narrow(0, 256, 44).narrow(1, 128, 128), format,
                                           tensor::kWeightBlock);
    const auto squares = tensor::quantize_fp8(x, format, tensor::kWeightBlock);
    EXPECT_TRUE(squares.scale[2][1].equal(wide.scale[0][0]));
  }
  testing::expect_fp8_block_products(kCpu);
  for (const std::int64_t rows : {0, 1, 37, 64, 300}) {
    testing::expect_fp8_linear(kCpu, rows, tensor::kActivationBlock, tensor::kWeightBlock,
                               /*weight_gradient=*/true);
    testing::expect_fp8_linear(kCpu, rows, tensor::kActivationBlock, tensor::kWeightBlock);
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
