// SPDX-License-Identifier: Apache-2.0
#include "pentatron/bench/power_sampler.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <thread>

#include "pentatron/bench/stopwatch.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::bench {
namespace {

// A GPU of 100 W whose clock rises by 10 MHz a second, read at made-up times.
TEST(PowerSampler, MedianClockMeanPowerAndInterpolatedEnergy) {
  std::atomic<int> reads = 0;
  const PowerSampler sampler([&reads] {
    const double at = reads++;
    return PowerSampler::Reading{
        .seconds = at, .sm_clock_mhz = 1000 + 10 * at, .watts = 100, .joules = 5000 + 100 * at};
  });
  while (reads < 12) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const PowerWindow window = sampler.between(1.5, 8.25);
  EXPECT_DOUBLE_EQ(window.sm_clock_mhz, 1050);  // of the readings 2 to 8
  EXPECT_DOUBLE_EQ(window.watts, 100);
  EXPECT_NEAR(window.joules, 675, 1e-9);
  EXPECT_TRUE(std::isnan(sampler.between(3.2, 3.8).watts));
}

TEST(PowerSampler, IsNotThereOnTheCpu) { EXPECT_EQ(make_power_sampler(kCpu), nullptr); }

TEST(Stopwatch, Median) {
  EXPECT_DOUBLE_EQ(median({3, 1, 2}), 2);
  EXPECT_DOUBLE_EQ(median({4, 1, 3, 2}), 2.5);
  EXPECT_TRUE(std::isnan(median({})));
}

TEST(Stopwatch, TimesOneCall) {
  const Timing timing = time_calls(
      kCpu, [] { std::this_thread::sleep_for(std::chrono::milliseconds(5)); }, 0.02);
  EXPECT_GE(timing.best, 0.005);
  EXPECT_GE(timing.seconds, timing.best);
  EXPECT_GE(timing.rounds, 3);
}

TEST(Stopwatch, RandomTensorsAreTheSameForAName) {
  const Tensor x = random_tensor({40, 7}, DType::Float, kCpu, "x", 0.5);
  EXPECT_TRUE(x.equal(random_tensor({40, 7}, DType::Float, kCpu, "x", 0.5)));
  EXPECT_FALSE(x.equal(random_tensor({40, 7}, DType::Float, kCpu, "y", 0.5)));
  EXPECT_NEAR(x.pow(2).mean().item<double>(), 0.25, 0.05);
}

}  // namespace
}  // namespace pentatron::bench
