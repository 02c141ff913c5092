// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/reporter.h"

#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <regex>
#include <thread>

#include "pentatron/base/file.h"
#include "pentatron/base/temp_folder.h"
#include "pentatron/base/test_support.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/training/test_support.h"

namespace pentatron::training {
namespace {

using namespace testing_support;  // NOLINT: test vocabulary

void with_reporters(const config::RunConfig& config,
                    const std::function<void(Reporter&, std::int64_t rank)>& body) {
  comm::run_threads(
      {.world_size = 2, .threads_per_rank = 1, .timeout = std::chrono::milliseconds(60'000)},
      [&](comm::Backend& backend) {
        comm::ParallelContext context(
            backend, comm::make_rank_grid(config.parallel, config.model.num_query_groups));
        Reporter reporter(config, backend.rank(), 2, nullptr);
        reporter.connect(context, Device("cpu"));
        body(reporter, backend.rank());
      });
}

TEST(Reporter, BarrierBeforeLevelOneTimers) {
  const auto config = [](bool barrier) {
    return tiny_config({.dp = 2}, [barrier](config::RunConfig& c) {
      c.logging.timing_log_level = 1;
      c.logging.barrier_with_l1_time = barrier;
    });
  };
  // With it nobody starts before all have come.
  std::atomic<bool> first_has_come{false};
  with_reporters(config(true), [&](Reporter& reporter, std::int64_t rank) {
    if (rank == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      first_has_come = true;
    }
    const TimedScope timed(&reporter.timers(), "optimizer", 1);
    EXPECT_TRUE(first_has_come);
  });
  // Without it one rank may be through before the other comes: here it must be.
  std::atomic<bool> second_is_through{false};
  with_reporters(config(false), [&](Reporter& reporter, std::int64_t rank) {
    if (rank == 0) {
      while (!second_is_through) std::this_thread::yield();
    }
    { const TimedScope timed(&reporter.timers(), "optimizer", 1); }
    if (rank == 1) second_is_through = true;
  });
  // The other levels never wait.
  second_is_through = false;
  with_reporters(config(true), [&](Reporter& reporter, std::int64_t rank) {
    if (rank == 0) {
      while (!second_is_through) std::this_thread::yield();
    }
    { const TimedScope timed(&reporter.timers(), "evaluate", 0); }
    { const TimedScope timed(&reporter.timers(), "forward-compute", 2); }
    if (rank == 1) second_is_through = true;
  });
}

TEST(Reporter, MemoryReportLine) {
  EXPECT_EQ(format_memory_report(3, 10,
                                 {.allocated = 1 << 20,
                                  .max_allocated = 5 << 19,
                                  .reserved = 3LL << 30,
                                  .max_reserved = 1}),
            "[Rank 3] (after 10 iterations) memory (MB) | allocated: 1.00 | max allocated: 2.50 | "
            "reserved: 3072.00 | max reserved: 0.00");
}

TEST(Reporter, MemoryOfTheCpuIsTheAllocatorsAndTheProcesss) {
  const tensor::MemoryMeter meter;
  const MemoryStatistics before = memory_statistics(Device("cpu"), &meter);
  constexpr std::int64_t kBytes = 32 << 20;
  {
    const Tensor held = tensor::zeros({kBytes / 4}, DType::Float);
    const MemoryStatistics during = memory_statistics(Device("cpu"), &meter);
    EXPECT_GE(during.allocated, before.allocated + kBytes);
    EXPECT_LT(during.allocated, before.allocated + kBytes + (1 << 20));
    EXPECT_EQ(during.num_blocks, before.num_blocks + 1);
    EXPECT_GE(during.max_reserved, during.reserved);
  }
  const MemoryStatistics after = memory_statistics(Device("cpu"), &meter);
  EXPECT_LT(after.allocated, before.allocated + (1 << 20));
  EXPECT_GE(after.max_allocated, before.allocated + kBytes);
  EXPECT_EQ(after.num_blocks, before.num_blocks);
  EXPECT_EQ(memory_statistics(Device("cpu"), nullptr).allocated, 0);
}

TEST(Progress, TellsOfThisJobAndOfTheRowOfEqualJobs) {
  const TempFolder folder;
  const auto path = folder.path() / "progress.txt";
  // Two jobs long ago: one of 4 ranks, one of 2 that began with 5e15 FLOPs and did 1e15.
  std::ofstream(path)
      << "2020-01-01 00:00:00\tJob ID: 1\t# GPUs: 4\tStarting job\n"
         "2020-01-01 01:00:00\tJob ID: 1\t# GPUs: 4\tSaved checkpoint\tIteration: 5\tJob "
         "throughput: 1.0 TFLOP/s/GPU\tCumulative throughput: 1.0 "
         "TFLOP/s/GPU\tFloating-point operations: 5.00e+15\tTokens (in billions): 0.01\n"
         "a line of somebody else\n"
         "2020-01-02 00:00:00\tJob ID: 2\t# GPUs: 2\tStarting job\n";
  ProgressFile progress(folder.path(), 2, 6e15);
  progress.saved(9, 1e16, 2.5e9);
  const std::string text = read_text_file(path);
  std::smatch match;
  ASSERT_TRUE(std::regex_search(
      text, match,
      std::regex(
          "Saved checkpoint\tIteration: 9\tJob throughput: ([0-9.]+) TFLOP/s/GPU\tCumulative "
          "throughput: ([0-9.]+) TFLOP/s/GPU\tFloating-point operations: 1.00e\\+16\tTokens "
          "\\(in billions\\): 2.50\n$")))
      << text;
  // 4e15 FLOPs on 2 ranks in under some minutes; 5e15 since 2020.
  EXPECT_GT(std::stod(match[1]), 4e15 / (600 * 1e12 * 2));
  EXPECT_LE(std::stod(match[1]), 4e15 / (1e12 * 2));
  EXPECT_EQ(match[2], "0.0");
}

}  // namespace
}  // namespace pentatron::training
