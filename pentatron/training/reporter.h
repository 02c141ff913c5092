// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "pentatron/base/log.h"
#include "pentatron/base/timer.h"
#include "pentatron/config/config.h"
#include "pentatron/training/metrics.h"
#include "pentatron/training/train_state.h"

namespace pentatron::training {

// What one optimizer step was, for the reports.
struct StepReport {
  double loss = 0;              // nats a valid token
  double grad_norm = 0;         // before clipping
  double num_valid_tokens = 0;  // of the global batch
  bool finite = true;
  bool skipped = false;  // no update was made
  double learning_rate = 0;
  double weight_decay = 0;
  double loss_scale = 1;
  std::optional<double> num_zeros = std::nullopt;  // gradient elements that are zero
  std::int64_t global_batch_size = 0;              // of this step
  double seconds = 0;                              // of this step
};

// Everything that a run tells about itself: lines on the screen and the metrics file. Every rank
// owns one and tells it the same things; the last rank (the speaker) writes. Holds no model and no
// data, changes no result.
class Reporter final {
 public:
  // `config` is the run's and outlives the reporter; its vocabulary is resolved before the first
  // step.
  Reporter(const config::RunConfig& config, std::int64_t rank, std::int64_t world_size);

  // Opens the files. Records of iterations after `resume_iteration` are dropped from them.
  void open(std::int64_t resume_iteration);
  [[nodiscard]] bool speaks() const { return speaks_; }
  template <typename... Args>
  void say(fmt::format_string<Args...> format, Args&&... args) const {
    if (speaks_) log::print_line(fmt::format(format, std::forward<Args>(args)...));
  }

  // The training loop begins: forgets what the time was spent on before.
  void begin_training();
  // After each step; `state` counts it already.
  void step(const TrainState& state, const StepReport& report);
  // Megatron's line of the steps since the last one that reset. `next_learning_rate`: of the coming
  // update.
  void log_line(const TrainState& state, double next_learning_rate,
                std::optional<double> params_norm, bool reset);
  // kind: "validation" or "test"; `where`: as format_evaluation_block has it; `set_name`: of one of
  // several. `final_one`: after training, written anew when a finished run starts again.
  void evaluation(const TrainState& state, const std::string& where, const char* kind,
                  const std::string& set_name, double loss, double num_valid_tokens,
                  bool final_one);
  // Seconds that the time per iteration leaves out (evaluations, saves).
  void exclude(double seconds) { window_.excluded_seconds += seconds; }

 private:
  // Since the last log line that reset it.
  struct Window {
    double loss_sum = 0;
    std::int64_t good = 0;
    std::int64_t all = 0;
    std::int64_t skipped = 0;
    std::int64_t nan = 0;
    double tokens = 0;
    double excluded_seconds = 0;
    Timer timer;
    [[nodiscard]] double seconds() const { return timer.seconds() - excluded_seconds; }
  };

  [[nodiscard]] double flops_of_step() const;

  const config::RunConfig& config_;
  std::int64_t world_size_;
  bool speaks_;
  std::unique_ptr<MetricsFile> metrics_;
  Window window_;
  double last_grad_norm_ = 0;
  double last_loss_scale_ = 1;
  std::int64_t last_batch_size_ = 0;
  std::optional<double> last_num_zeros_;
};

}  // namespace pentatron::training
