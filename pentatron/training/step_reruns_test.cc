// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/step_reruns.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "pentatron/base/file.h"
#include "pentatron/base/temp_folder.h"
#include "pentatron/base/test_support.h"

namespace pentatron::training {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

StepReruns reruns(std::int64_t rate, const std::string& type = "transient_error",
                  const std::string& mode = "validate_results") {
  config::RunConfig config;
  config.training.rerun_mode = mode;
  config.training.error_injection_rate = rate;
  config.training.error_injection_type = type;
  return StepReruns(config);
}

TEST(StepReruns, InjectsOneOfAsMany) {
  int injected = 0;
  for (int i = 1; i <= 10'000; ++i) injected += reruns(10).injects(i) ? 1 : 0;
  EXPECT_NEAR(injected, 1000, 150);  // five deviations
  for (int i = 1; i <= 100; ++i) {
    EXPECT_TRUE(reruns(1).injects(i));
    EXPECT_FALSE(reruns(0).injects(i));
    EXPECT_FALSE(reruns(1, "transient_error", "disabled").injects(i));
    EXPECT_FALSE(reruns(1, "transient_error", "report_stats").injects(i));
  }
}

TEST(StepReruns, VerdictsInPlace) {
  const StepReruns machine = reruns(0);
  EXPECT_EQ(machine.in_place({kNan, 1}, {kNan, 1}, false), Verdict::kReproduced);
  EXPECT_EQ(machine.in_place({kNan, 1}, {2, 1}, false), Verdict::kTransient);
  EXPECT_EQ(machine.in_place({2, HUGE_VAL}, {2, 5}, false), Verdict::kTransient);
  EXPECT_EQ(machine.in_place({2, HUGE_VAL}, {std::nextafter(2, 3), HUGE_VAL}, false),
            Verdict::kTransient);
  EXPECT_EQ(reruns(1, "transient_error").in_place({2, 1}, {2, 1}, true), Verdict::kTransient);
  EXPECT_EQ(reruns(1, "persistent_error").in_place({2, 1}, {2, 1}, true), Verdict::kReproduced);
  EXPECT_EQ(reruns(1, "correct_result").in_place({2, 1}, {2, 1}, true), Verdict::kReproduced);
  EXPECT_EQ(exit_code_of(Verdict::kReproduced), 16);
  EXPECT_EQ(exit_code_of(Verdict::kSameDevices), 16);
  EXPECT_EQ(exit_code_of(Verdict::kTransient), 17);
  EXPECT_EQ(exit_code_of(Verdict::kPersistent), 17);
  EXPECT_EQ(exit_code_of(Verdict::kCorrect), 17);
}

TEST(StepReruns, VerdictsOnOtherDevices) {
  const RejectedStep before = reruns(0).rejected(7, {kNan, 1}, false, {"one cuda:0", "one cuda:1"});
  // The same devices in another order are the same devices.
  EXPECT_EQ(StepReruns::elsewhere(before, {kNan, 1}, {"one cuda:1", "one cuda:0"}),
            Verdict::kSameDevices);
  EXPECT_EQ(StepReruns::elsewhere(before, {kNan, 1}, {"one cuda:0", "two cuda:1"}),
            Verdict::kCorrect);
  EXPECT_EQ(StepReruns::elsewhere(before, {3, 1}, {"two cuda:0", "two cuda:1"}),
            Verdict::kPersistent);
  const auto injected = [](const char* type) {
    return reruns(1, type).rejected(7, {2, 1}, true, {"one cpu"});
  };
  EXPECT_EQ(StepReruns::elsewhere(injected("persistent_error"), {2, 1}, {"two cpu"}),
            Verdict::kPersistent);
  EXPECT_EQ(StepReruns::elsewhere(injected("correct_result"), {2, 1}, {"two cpu"}),
            Verdict::kCorrect);
}

TEST(StepReruns, RecordReadsBack) {
  const TempFolder folder;
  EXPECT_FALSE(read_rejected_step(folder.path()).has_value());
  write_rejected_step(folder.path(), {.iteration = 7,
                                      .numbers = {kNan, HUGE_VAL},
                                      .injected = "persistent_error",
                                      .devices = {"one cpu", "two cpu"}});
  const auto read = read_rejected_step(folder.path());
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->iteration, 7);
  EXPECT_TRUE(read->numbers.same({kNan, HUGE_VAL}));
  EXPECT_EQ(read->injected, "persistent_error");
  EXPECT_EQ(read->devices, (std::vector<std::string>{"one cpu", "two cpu"}));
  remove_rejected_step(folder.path());
  EXPECT_FALSE(read_rejected_step(folder.path()).has_value());
  for (const char* text : {"{}", R"({"iteration":1,"loss":"x"})", R"({"iteration":"1"})"}) {
    write_file_atomically(folder.path() / "rerun.json", text);
    expect_error(ErrorKind::kCheckpoint, "", [&] { (void)read_rejected_step(folder.path()); });
  }
}

TEST(StepReruns, StatsOfDeterminism) {
  DeterminismStats stats;
  stats.add({2, 1}, {2, 1});
  stats.add({2, 1}, {1, 1});
  EXPECT_EQ(stats.num_steps(), 2);
  EXPECT_EQ(stats.line(),
            "determinism of 2 steps run twice: 1 with another loss, relative difference 2.500e-01 "
            "on average, 5.000e-01 at most");
}

}  // namespace
}  // namespace pentatron::training
