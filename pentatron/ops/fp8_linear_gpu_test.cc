// SPDX-License-Identifier: Apache-2.0
#include "pentatron/ops/test_fp8.h"
#include "pentatron/tensor/gpu_test_support.h"

namespace pentatron::ops {
namespace {

TEST(Fp8LinearOnGpu, StaysWithinTheBoundOfItsFormats) {
  PENTATRON_NEEDS_GPUS(1);
  for (const std::int64_t rows : {0, 1, 37, 64}) {
    testing::expect_fp8_linear(Device("cuda:0"), rows);
  }
}

TEST(Fp8LinearOnGpu, ProductsAreThoseOfTheHeldValues) {
  PENTATRON_NEEDS_GPUS(1);
  testing::expect_fp8_products(Device("cuda:0"));
}

TEST(Fp8LinearOnGpu, QuantisesToTheCpusBits) {
  PENTATRON_NEEDS_GPUS(1);
  const Tensor x = testing::normal({33, 48}, 1).to(DType::BFloat16);
  for (const auto format : {tensor::Fp8Format::kE4M3, tensor::Fp8Format::kE5M2}) {
    const auto host = tensor::quantize_fp8(x, format);
    const auto gpu = tensor::quantize_fp8(x.to(Device("cuda:0")), format);
    EXPECT_EQ(host.scale.item<float>(), gpu.scale.item<float>());
    EXPECT_TRUE(host.data.view(DType::Byte).equal(gpu.data.cpu().view(DType::Byte)));
  }
}

}  // namespace
}  // namespace pentatron::ops
