// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "pentatron/config/config.h"

namespace pentatron::training {

// Exit codes of Megatron-LM's rerun machine: the run may be resumed elsewhere to tell what was
// wrong; a result did not stand.
inline constexpr int kExitResumeElsewhere = 16;
inline constexpr int kExitResultRejected = 17;

// What a step came to, bit for bit. Values that are not numbers equal each other.
struct StepNumbers {
  double loss = 0;
  double grad_norm = 0;
  [[nodiscard]] bool same(const StepNumbers& other) const;
};

// What is kept beside a checkpoint of a step whose result was rejected and came again: the step
// after it is run on other devices, which tells a faulty device from a faulty program.
struct RejectedStep {
  std::int64_t iteration = 0;  // the step's
  StepNumbers numbers;
  std::string injected;              // --error-injection-type, or empty
  std::vector<std::string> devices;  // of all ranks, in order: "host cuda:3"
};

// What a second run says of a rejected result.
enum class Verdict {
  kTransient,    // it did not come again in place
  kReproduced,   // it came again in place: other devices must tell
  kSameDevices,  // it was to run on other devices and does not
  kPersistent,   // other devices have another result: the first ones may be faulty
  kCorrect,      // other devices have the same: data, options or program are the cause
};
[[nodiscard]] int exit_code_of(Verdict verdict);
// One line for the log.
[[nodiscard]] std::string describe(Verdict verdict, std::int64_t iteration,
                                   const StepNumbers& first, const StepNumbers& second);

// --rerun-mode validate_results and --error-injection-*: whether a step's result is taken as wrong
// although it is none, and what its second runs say. Pure; every rank comes to the same answers.
class StepReruns final {
 public:
  explicit StepReruns(const config::RunConfig& config);

  [[nodiscard]] bool validates() const { return mode_ == "validate_results"; }
  [[nodiscard]] bool reports() const { return mode_ == "report_stats"; }
  // One of --error-injection-rate iterations, by (seed, iteration).
  [[nodiscard]] bool injects(std::int64_t iteration) const;
  [[nodiscard]] Verdict in_place(const StepNumbers& first, const StepNumbers& second,
                                 bool injected) const;
  [[nodiscard]] RejectedStep rejected(std::int64_t iteration, const StepNumbers& numbers,
                                      bool injected, std::vector<std::string> devices) const;
  [[nodiscard]] static Verdict elsewhere(const RejectedStep& before, const StepNumbers& now,
                                         const std::vector<std::string>& devices);

 private:
  std::string mode_;
  std::int64_t rate_;
  std::string type_;
  std::uint64_t seed_;
};

// "rerun.json" of a --save folder, which belongs to the checkpoint of iteration - 1. A file that is
// no such record: kCheckpoint.
void write_rejected_step(const std::filesystem::path& folder, const RejectedStep& step);
[[nodiscard]] std::optional<RejectedStep> read_rejected_step(const std::filesystem::path& folder);
void remove_rejected_step(const std::filesystem::path& folder);

// --rerun-mode report_stats: how far second runs of the same step are from the first.
class DeterminismStats final {
 public:
  void add(const StepNumbers& first, const StepNumbers& second);
  [[nodiscard]] std::int64_t num_steps() const { return steps_; }
  [[nodiscard]] std::string line() const;

 private:
  std::int64_t steps_ = 0;
  std::int64_t different_ = 0;
  double sum_ = 0;  // of the relative differences of the losses
  double largest_ = 0;
};

}  // namespace pentatron::training
