// SPDX-License-Identifier: Apache-2.0
// What is timed runs on a GPU, and the meters tell something.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "pentatron/bench/ceilings.h"
#include "pentatron/bench/kernels.h"
#include "pentatron/bench/power_sampler.h"
#include "pentatron/tensor/device.h"
#include "pentatron/tensor/gpu_test_support.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::bench {
namespace {

const Device kGpu("cuda:0");

TEST(BenchOnGpu, EveryKernelCaseRuns) {
  PENTATRON_NEEDS_GPUS(1);
  const KernelShapes shapes{.tokens = 48,
                            .hidden = 64,
                            .feed_forward = 96,
                            .heads = 4,
                            .groups = 2,
                            .head_dim = 64,
                            .vocabulary = 160,
                            .parameters = 1 << 16,
                            .dtype = DType::BFloat16};
  for (const KernelCase& kernel : kernel_cases(kGpu, shapes)) {
    const std::function<void()> call = kernel.prepare();
    EXPECT_NO_THROW(call()) << kernel.name;
    EXPECT_NO_THROW(tensor::synchronize(kGpu)) << kernel.name;
  }
}

TEST(BenchOnGpu, CeilingsAreThoseOfAGpu) {
  PENTATRON_NEEDS_GPUS(1);
  EXPECT_GT(copy_rate(kGpu, std::int64_t{1} << 28), 2e11);
  const ProductShape shape{"square", 4096, 4096, 4096};
  const ProductTimes bf16 = time_products(kGpu, shape, DType::BFloat16);
  const ProductTimes fp8 = time_products(kGpu, shape, DType::BFloat16, Operands::kFp8);
  EXPECT_GT(shape.flops() / bf16.forward, 5e13);
  EXPECT_LT(fp8.total(), bf16.total());
  const ProductTimes blocks = time_products(kGpu, shape, DType::BFloat16, Operands::kFp8Blocks);
  EXPECT_LT(blocks.total(), bf16.total());
  const AttentionTimes attention = time_attention(kGpu, {"", 2, 2048, 16, 4, 128}, DType::BFloat16);
  EXPECT_GT(attention.backward, attention.forward);
}

TEST(BenchOnGpu, MetersTellClockPowerAndEnergy) {
  PENTATRON_NEEDS_GPUS(1);
  const std::unique_ptr<PowerSampler> power = make_power_sampler(kGpu);
  ASSERT_NE(power, nullptr);
  const double from = power->now();
  (void)time_products(kGpu, {"square", 4096, 4096, 4096}, DType::BFloat16);
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
  const PowerWindow window = power->between(from, power->now());
  EXPECT_GT(window.sm_clock_mhz, 200);
  EXPECT_LT(window.sm_clock_mhz, 4000);
  EXPECT_GT(window.watts, 20);
  EXPECT_GT(window.joules, 1);
}

}  // namespace
}  // namespace pentatron::bench
