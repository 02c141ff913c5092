// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/reporter.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <fstream>
#include <map>
#include <optional>
#include <regex>
#include <thread>

#include "pentatron/base/event_file_test_support.h"
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
        comm::ParallelContext context(backend, comm::make_grids(config.parallel));
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

// What a step of a tiny run reports, and how far the run is then.
void report_step(Reporter& reporter, std::int64_t iteration) {
  TrainState state;
  state.iteration = iteration;
  nn::StepScalars scalars;
  scalars.set("lm loss", 1, nn::ScalarKind::kLoss);
  scalars.set("learning rate", 0.01);
  scalars.set("global batch size", 4);
  reporter.step(state, scalars);
  reporter.end_iteration(state);
}

TEST(Reporter, EnergyIsAveragedOverRanksAndIterations) {
  const TempFolder folder;
  const config::RunConfig config = tiny_config({.dp = 2}, [&](config::RunConfig& c) {
    c.training.log_interval = 4;
    c.training.metrics_file = (folder.path() / "m.jsonl").string();
    c.logging.tensorboard_dir = (folder.path() / "events").string();
  });
  testing::internal::CaptureStdout();
  with_reporters(config, [&](Reporter& reporter, std::int64_t rank) {
    // Rank 0 uses 10 J an iteration, rank 1 twice as much; pauses use 1000 J.
    double used = 5e6;
    reporter.measure_energy([&used] { return used; });
    const TrainState start;
    reporter.open(start);
    used += 777;  // before training
    reporter.begin_training(start);
    for (std::int64_t i = 1; i <= 8; ++i) {
      used += rank == 0 ? 10 : 20;
      if (i == 6) used += rank == 0 ? 20 : 40;
      report_step(reporter, i);
      const Reporter::Pause pause(reporter);
      used += 1000;
    }
    reporter.close();
  });
  const std::string printed = testing::internal::GetCapturedStdout();
  // At 1 (whose window goes on), at 4 and at 8, whose window has the dear step 6.
  const std::regex line(
      "energy per GPU \\(J/iter/GPU\\): ([0-9.]+) \\| power per GPU \\(W/GPU\\): "
      "([0-9.]+) \\| learning rate");
  std::vector<std::string> joules;
  for (std::sregex_iterator it(printed.begin(), printed.end(), line), end; it != end; ++it) {
    joules.push_back((*it)[1]);
    EXPECT_GT(std::stod((*it)[2]), 0);
  }
  EXPECT_EQ(joules, (std::vector<std::string>{"15.0", "15.0", "22.5"})) << printed;
  const auto values = [&](const char* name) {
    std::vector<double> found;
    for (const MetricsPoint& point : read_metrics(folder.path() / "m.jsonl", "train", name)) {
      found.push_back(point.value);
    }
    return found;
  };
  EXPECT_EQ(values("joules_per_gpu"), (std::vector<double>{15, 15, 22.5}));
  std::vector<float> energy;
  std::size_t powers = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path() / "events")) {
    for (const ReadEvent& event : read_event_file(entry.path())) {
      if (event.tag == "iter-energy/gpu") energy.push_back(event.value);
      powers += event.tag == "power/gpu" ? 1 : 0;
    }
  }
  EXPECT_EQ(energy, (std::vector<float>{15, 15, 22.5}));
  EXPECT_EQ(powers, 3U);
}

nn::StepScalars step_scalars(std::optional<double> loss, double norm, bool skipped) {
  nn::StepScalars scalars;
  if (loss) scalars.set("lm loss", *loss, nn::ScalarKind::kLoss);
  scalars.set("lm loss count", loss ? 64 : 0, nn::ScalarKind::kCount);
  scalars.set("grad norm", norm);
  scalars.set("skipped", skipped ? 1 : 0);
  scalars.set("learning rate", 0.25);
  scalars.set("applied learning rate", 0.5);
  scalars.set("loss scale", 128);
  scalars.set("router entropy", 1.5, nn::ScalarKind::kMean);
  scalars.set("global batch size", 4);
  scalars.set("seconds", 0.5);
  return scalars;
}

// Steps that made no update, and those without valid tokens, are not in the mean; what is not
// finite is in the metrics file alone; what screen, file and TensorBoard have in common is equal; a
// number that nobody has heard of is in all three.
class ReportedRun : public ::testing::Test {
 protected:
  // What the run prints.
  std::string run() {
    testing::internal::CaptureStdout();
    with_reporters(config_, [&](Reporter& reporter, std::int64_t) { report(reporter); });
    return testing::internal::GetCapturedStdout();
  }
  std::vector<double> series(const char* name) const {
    std::vector<double> found;
    for (const MetricsPoint& point : read_metrics(folder_.path() / "m.jsonl", "train", name)) {
      found.push_back(point.value);
    }
    return found;
  }
  std::map<std::string, std::vector<float>> events() const {
    std::map<std::string, std::vector<float>> all;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path() / "events")) {
      for (const ReadEvent& event : read_event_file(entry.path())) {
        if (event.text.empty()) all[event.tag].push_back(event.value);
      }
    }
    return all;
  }

 private:
  void report(Reporter& reporter) {
    TrainState state;
    reporter.open(state);
    reporter.begin_training(state);
    for (const nn::StepScalars& scalars : steps_) {
      ++state.iteration;
      if (scalars.find("skipped") != 0) ++state.skipped_iterations;
      if (scalars.find("lm loss") == HUGE_VAL) ++state.nan_iterations;
      reporter.step(state, scalars);
      reporter.end_iteration(state);
    }
    // The run ends here: its last step has a line although none is due, once.
    reporter.last_line(state);
    reporter.last_line(state);
    reporter.close();
  }

  TempFolder folder_;
  config::RunConfig config_ = tiny_config({.dp = 2}, [&](config::RunConfig& c) {
    c.training.log_interval = 4;
    c.training.train_iters = 6;
    c.training.metrics_file = (folder_.path() / "m.jsonl").string();
    c.logging.tensorboard_dir = (folder_.path() / "events").string();
  });
  std::vector<nn::StepScalars> steps_{
      step_scalars(1.0, 0.5, false), step_scalars(std::nullopt, 0, false),
      step_scalars(HUGE_VAL, -std::nan(""), true), step_scalars(2.0, HUGE_VAL, true),
      step_scalars(4.0, 0.75, false)};
};

TEST_F(ReportedRun, ScreenFileAndEventsTellTheSame) {
  const std::string printed = run();
  std::vector<std::string> lines;
  const std::regex line(" iteration [^\n]*");
  for (std::sregex_iterator it(printed.begin(), printed.end(), line), end; it != end; ++it) {
    lines.push_back(std::regex_replace((*it)[0].str(), std::regex("\\(ms\\): [0-9.]+"), "(ms): T"));
  }
  const std::string begin =
      " | consumed samples:            0 | elapsed time per iteration (ms): T "
      "| learning rate: 2.500000E-01 | global batch size:     4 | lm loss: ";
  const std::string middle = " | loss scale: 128.0 | ";
  const std::string end = "router entropy: 1.500 | number of skipped iterations:   ";
  EXPECT_EQ(lines, (std::vector<std::string>{
                       " iteration        1/       6" + begin + "1.000000E+00" + middle +
                           "grad norm: 0.500 | " + end + "0 | number of nan iterations:   0 |",
                       " iteration        4/       6" + begin + "1.000000E+00" + middle + end +
                           "2 | number of nan iterations:   1 |",
                       " iteration        5/       6" + begin + "4.000000E+00" + middle +
                           "grad norm: 0.750 | " + end + "0 | number of nan iterations:   0 |"}))
      << printed;
  EXPECT_EQ(series("lm_loss"), (std::vector<double>{1, HUGE_VAL, 2, 4}));
  EXPECT_EQ(series("valid_tokens"), (std::vector<double>{64, 0, 64, 64, 64}));
  EXPECT_EQ(series("learning_rate"), std::vector<double>(5, 0.25));
  EXPECT_EQ(series("applied_learning_rate"), std::vector<double>(5, 0.5));
  EXPECT_EQ(series("router_entropy"), std::vector<double>(5, 1.5));
  EXPECT_EQ(series("tokens_per_second"), std::vector<double>(5, 4 * kSequence / 0.5));
  std::map<std::string, std::vector<float>> told = events();
  EXPECT_EQ(told["lm loss"], (std::vector<float>{1, 4}));
  EXPECT_EQ(told["grad-norm"], (std::vector<float>{0.5F, 0, 0.75F}));
  EXPECT_EQ(told["learning-rate"], std::vector<float>(5, 0.25F));
  EXPECT_EQ(told["router entropy"], std::vector<float>(5, 1.5F));
}

// The iteration's own line comes each time, what is left to do at most once a second, but for the
// first and the last.
TEST(Reporter, ProgressAtMostOnceASecond) {
  const config::RunConfig config = tiny_config({.dp = 2}, [](config::RunConfig& c) {
    c.training.log_interval = 1;
    c.training.train_iters = 50;
  });
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const Timer timer;
  with_reporters(config, [&](Reporter& reporter, std::int64_t) {
    reporter.begin_training(TrainState{});
    for (std::int64_t iteration = 1; iteration <= 50; ++iteration) report_step(reporter, iteration);
  });
  const double seconds = timer.seconds();
  const std::string errors = testing::internal::GetCapturedStderr();
  const std::string output = testing::internal::GetCapturedStdout();
  const auto count = [](const std::string& text, const char* pattern) {
    const std::regex regex(pattern);
    return std::distance(std::sregex_iterator(text.begin(), text.end(), regex),
                         std::sregex_iterator());
  };
  EXPECT_EQ(count(output, "iteration +[0-9]+/ +50 "), 50);
  EXPECT_EQ(count(errors, "tokens/s, 1 of 50 iterations"), 1) << errors;
  EXPECT_EQ(count(errors, "tokens/s, 50 of 50 iterations"), 1) << errors;
  EXPECT_LE(count(errors, "tokens/s, "), 2 + static_cast<std::int64_t>(seconds)) << errors;
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
