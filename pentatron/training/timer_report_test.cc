// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/timer_report.h"

#include <gtest/gtest.h>

#include <mutex>
#include <thread>

#include "pentatron/base/test_support.h"
#include "pentatron/training/test_support.h"

namespace pentatron::training {
namespace {

const std::vector<TimerReading> kReadings{
    {.name = "forward-backward", .seconds = {0.25, 0.5, 0, 0.3}},
    {.name = "optimizer-copy-main-to-model-params", .seconds = {0, 0, 0.001, 0}}};

TEST(TimerReport, LeastAndMostOfTheRanksThatHaveIt) {
  EXPECT_EQ(format_timers(kReadings, "minmax", 2),
            "(min, max) time across ranks (ms):\n"
            "    forward-backward ...............................: (125.00, 250.00)\n"
            "    optimizer-copy-main-to-model-params ............: (0.50, 0.50)");
  EXPECT_EQ(format_timers(kReadings, "max", 1),
            "max time across ranks (ms):\n"
            "    forward-backward ...............................: 500.00\n"
            "    optimizer-copy-main-to-model-params ............: 1.00");
}

TEST(TimerReport, EveryRank) {
  EXPECT_EQ(format_timers(kReadings, "all", 1),
            "times across ranks (ms):\n"
            "  forward-backward:\n"
            "     rank  0: 250.00\n"
            "     rank  1: 500.00\n"
            "     rank  3: 300.00\n"
            "  optimizer-copy-main-to-model-params:\n"
            "     rank  2: 1.00");
}

TEST(TimerReport, NothingMeasuredIsNoText) {
  for (const char* option : {"minmax", "max", "all"}) EXPECT_EQ(format_timers({}, option, 1), "");
  expect_error(ErrorKind::kInternal, "--timing-log-option mean",
               [] { (void)format_timers(kReadings, "mean", 1); });
}

TEST(TimerReport, RanksExchangeAndResetWhatTheyMeasured) {
  std::mutex mutex;
  std::vector<std::vector<TimerReading>> first;
  comm::run_threads(
      {.world_size = 3, .threads_per_rank = 1, .timeout = std::chrono::milliseconds(60'000)},
      [&](comm::Backend& backend) {
        const config::RunConfig config = testing_support::tiny_config({.dp = 3});
        comm::ParallelContext context(backend, comm::make_grids(config.parallel));
        Timers timers(1);
        // Rank r is busy for 20 r ms; only rank 1 has the second timer.
        if (backend.rank() > 0) {
          const TimedScope timed(&timers, "forward-backward", 1);
          std::this_thread::sleep_for(std::chrono::milliseconds(20 * backend.rank()));
        }
        if (backend.rank() == 1) {
          const TimedScope timed(&timers, "optimizer", 1);
        }
        auto readings = read_timers(timers, context.world(), step_timers());
        EXPECT_TRUE(read_timers(timers, context.world(), step_timers()).empty());
        const std::lock_guard lock(mutex);
        first.push_back(std::move(readings));
      });
  for (const std::vector<TimerReading>& readings : first) {
    ASSERT_EQ(readings.size(), 2U);
    EXPECT_EQ(readings[0].name, "forward-backward");
    EXPECT_EQ(readings[0].seconds.at(0), 0);
    EXPECT_GE(readings[0].seconds.at(1), 0.020);
    EXPECT_GE(readings[0].seconds.at(2), 0.040);
    EXPECT_EQ(readings[0].seconds, first[0][0].seconds);  // the same on every rank
    EXPECT_EQ(readings[1].name, "optimizer");
    EXPECT_GT(readings[1].seconds.at(1), 0);
    EXPECT_EQ(readings[1].seconds.at(2), 0);
  }
}

}  // namespace
}  // namespace pentatron::training
