// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/utilisation.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <thread>

namespace pentatron::training {
namespace {

TEST(Utilisation, ReadsTheKernelsFields) {
  const auto seconds = cpu_seconds_of(
      "42 (a) b) c) R 1 42 42 0 -1 4194304 100 0 0 0 250 50 7 8 20 0 1 0 100 1000 10", 100);
  ASSERT_TRUE(seconds);
  EXPECT_DOUBLE_EQ(*seconds, 3);
  EXPECT_FALSE(cpu_seconds_of("", 100));
  EXPECT_FALSE(cpu_seconds_of("42 (x) R 1 2", 100));
}

TEST(Utilisation, AWorkingProcessIsBusierThanASleepingOne) {
  UtilisationMeter meter([] { return 0.75; });
  EXPECT_TRUE(std::isnan(meter.read().cpu)) << "nothing is known yet";
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
  const UtilisationMeter::Shares asleep = meter.read();
  EXPECT_EQ(asleep.gpu, 0.75);
  const Timer timer;
  volatile double sum = 0;
  while (timer.seconds() < 1) sum = sum + std::sqrt(sum + 1);
  const UtilisationMeter::Shares busy = meter.read();
  EXPECT_GE(asleep.cpu, 0);
  EXPECT_GT(busy.cpu, asleep.cpu);
  EXPECT_LE(busy.cpu, 1);
}

}  // namespace
}  // namespace pentatron::training
