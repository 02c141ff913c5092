// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/batch_schedule.h"

#include <gtest/gtest.h>

#include "pentatron/base/test_support.h"

namespace pentatron::config {
namespace {

TEST(BatchSchedule, Constant) {
  const BatchSchedule schedule(8);
  EXPECT_TRUE(schedule.is_constant());
  EXPECT_EQ(schedule.size_at(0), 8);
  EXPECT_EQ(schedule.size_at(1'000'000), 8);
  EXPECT_EQ(schedule.samples_after(5), 40);
  EXPECT_EQ(schedule.iterations_within(47), 5);
  // N5: from where another batch size has led.
  EXPECT_EQ(schedule.samples_after(2, 3), schedule.samples_after(2) + 3);
  EXPECT_EQ(schedule.iterations_within(schedule.samples_after(2) + 3, 3), 2);
  EXPECT_EQ(schedule.iterations_within(schedule.samples_after(2) + 2, 3), 1);
  EXPECT_EQ(schedule.iterations_within(3, 7), 0);
  expect_error(ErrorKind::kConfig, "no count of samples", [] {
    (void)BatchSchedule(std::int64_t{1} << 40).samples_after(std::int64_t{1} << 40);
  });
}

// Step by step, as a trainer does, against the closed forms.
TEST(BatchSchedule, StagesEqualASimulation) {
  constexpr std::int64_t kLength = 10;
  for (const char* text : {"0:2 100:4 1K:6", "0:3 105:8", "0:5,0.2K:7,210:9,0.001M:1", "0:4"}) {
    SCOPED_TRACE(text);
    const BatchSchedule schedule(text, kLength);
    std::int64_t consumed = 0;
    for (std::int64_t step = 0; step < 300; ++step) {
      EXPECT_EQ(schedule.samples_after(step), consumed);
      const std::int64_t size = schedule.size_at(consumed);
      EXPECT_EQ(schedule.iterations_within(consumed), step);
      EXPECT_EQ(schedule.iterations_within(consumed + size - 1), step);
      EXPECT_EQ(schedule.iterations_for(consumed), step);
      EXPECT_EQ(schedule.iterations_for(consumed + 1),
                step + (!schedule.is_constant() || size == 1 ? 1 : 0));
      consumed += size;
    }
  }
  const BatchSchedule schedule("0:2 100:4 1K:6", kLength);
  EXPECT_FALSE(schedule.is_constant());
  EXPECT_EQ(schedule.sizes(), (std::vector<std::int64_t>{2, 4, 6}));
  EXPECT_EQ(schedule.size_at(9), 2);
  EXPECT_EQ(schedule.size_at(10), 4) << "100 tokens are ten samples";
  EXPECT_EQ(schedule.size_at(99), 4);
  EXPECT_EQ(schedule.size_at(100), 6);
  // A threshold inside a sample begins with it (N7).
  EXPECT_EQ(BatchSchedule("0:2 109:4", kLength).size_at(9), 2);
  EXPECT_EQ(BatchSchedule("0:2 109:4", kLength).size_at(10), 4);
}

TEST(BatchSchedule, LoweredToMultiples) {
  const BatchSchedule lowered = BatchSchedule(10).lowered_to_multiples_of(4);
  EXPECT_TRUE(lowered.is_constant());
  EXPECT_EQ(lowered.size_at(0), 8);
  EXPECT_EQ(lowered.samples_after(3), 24);
  EXPECT_EQ(BatchSchedule(8).lowered_to_multiples_of(4).size_at(0), 8);
  // Stages begin where they did.
  const BatchSchedule stages = BatchSchedule("0:5 100:11 1K:12", 10).lowered_to_multiples_of(4);
  EXPECT_EQ(stages.sizes(), (std::vector<std::int64_t>{4, 8, 12}));
  EXPECT_EQ(stages.size_at(9), 4);
  EXPECT_EQ(stages.size_at(10), 8);
  EXPECT_EQ(stages.samples_after(4), 4 + 4 + 4 + 8);
  expect_error(ErrorKind::kConfig, "a batch of 3 samples",
               [] { (void)BatchSchedule(3).lowered_to_multiples_of(4); });
}

TEST(BatchSchedule, Units) {
  EXPECT_EQ(BatchSchedule("0:768 250B:1536", 4096).size_at(61'035'155), 768);
  EXPECT_EQ(BatchSchedule("0:768 250B:1536", 4096).size_at(61'035'156), 1536);
  EXPECT_EQ(BatchSchedule("0:1 1.5T:2", 1).size_at(1'500'000'000'000), 2);
  EXPECT_EQ(BatchSchedule("0:1 2M:2", 1).size_at(1'999'999), 1);
}

TEST(BatchSchedule, RefusesWhatIsNoSchedule) {
  for (const char* text : {"", " ", "5:2", "0:0", "0:-1", "0", "0:2 x:4", "0:2 1X:4", "0:2 5:4 5:6",
                           "0:2 5:4 3:6", "0:2 1e30:4", "0:2 0.5:4", "0:2:3", "0:2 -5:4"}) {
    SCOPED_TRACE(text);
    expect_error(ErrorKind::kConfig, "--step-batch-size-schedule",
                 [&] { (void)BatchSchedule(text, 1); });
  }
  // Two stages of less than a sample.
  expect_error(ErrorKind::kConfig, "does not begin after",
               [] { (void)BatchSchedule("0:2 11:4 15:6", 10); });
}

}  // namespace
}  // namespace pentatron::config
