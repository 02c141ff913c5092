// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "pentatron/base/event_file.h"
#include "pentatron/base/log.h"
#include "pentatron/base/timer.h"
#include "pentatron/comm/parallel_context.h"
#include "pentatron/config/config.h"
#include "pentatron/training/card_energy.h"
#include "pentatron/training/log_format.h"
#include "pentatron/training/memory_report.h"
#include "pentatron/training/metrics.h"
#include "pentatron/training/progress.h"
#include "pentatron/training/samples.h"
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
  double next_learning_rate = 0;  // of the coming update: what Megatron's line shows
  double weight_decay = 0;
  double loss_scale = 1;
  std::optional<double> num_zeros = std::nullopt;    // among the gradients
  std::optional<double> params_norm = std::nullopt;  // where params_norm_due() asked for it
  std::optional<double> max_attention_logit = std::nullopt;
  std::int64_t global_batch_size = 0;  // of this step
  double seconds = 0;                  // of this step
};

// Everything that a run tells about itself: lines on the screen, timers, memory, the metrics file,
// TensorBoard's events, progress.txt. Every rank owns one and tells it the same things (where
// timers are read, ranks exchange them); the last rank, the speaker, writes. Holds no model and no
// data, changes no result.
class Reporter final {
 public:
  // `config` is the run's and outlives the reporter; its vocabulary is resolved before the first
  // step. `memory`: of this process, may be null.
  Reporter(const config::RunConfig& config, std::int64_t rank, std::int64_t world_size,
           const tensor::MemoryMeter* memory);

  // From now on ranks can exchange timers, which wait for the device. The context outlives the
  // reporter.
  void connect(comm::ParallelContext& context, Device device);
  // --log-energy: of this rank's card. Every rank has one, or none.
  void measure_energy(EnergyCounter counter);
  // Opens the files of a run whose newest step is `state`'s. The metrics file loses what it holds
  // of later ones; TensorBoard's gets a file beside the older ones, as Megatron's does.
  void open(const TrainState& state);
  // Writes what still waits and closes the files; their errors come here.
  void close();

  [[nodiscard]] bool speaks() const { return speaks_; }
  [[nodiscard]] Timers& timers() { return timers_; }
  template <typename... Args>
  void say(fmt::format_string<Args...> format, Args&&... args) const {
    if (speaks_) log::print_line(fmt::format(format, std::forward<Args>(args)...));
  }

  // The training loop begins: forgets what the time was spent on before.
  void begin_training(const TrainState& state);
  // Whether the report of step `iteration` wants the norm of all weights.
  [[nodiscard]] bool params_norm_due(std::int64_t iteration) const;
  // After each step; `state` counts it already.
  void step(const TrainState& state, const StepReport& report);
  // After each iteration, passed over ones too. Prints Megatron's line, timers and memory when they
  // are due: at the first iteration of this process (whose window then goes on) and at multiples of
  // --log-interval.
  void end_iteration(const TrainState& state);
  // kind: "validation" or "test"; `where`: as format_evaluation_block has it; `set_name`: of one of
  // several. `final_one`: after training, written anew when a finished run starts again.
  void evaluation(const TrainState& state, const std::string& where, const char* kind,
                  const std::string& set_name, double loss, double num_valid_tokens,
                  bool final_one);
  void sample(const TrainState& state, const Sample& sample, bool final_one);
  void saved(const TrainState& state);
  // Prints timers of level 0 that have stopped just now.
  void show_timers(std::initializer_list<std::string_view> names);
  // While one lives, time and energy are no iteration's (evaluations, saves).
  class Pause final {
   public:
    explicit Pause(Reporter& reporter) : reporter_(reporter) {
      if (reporter_.energy_) reporter_.energy_->pause();
    }
    ~Pause() {
      reporter_.window_.excluded_seconds += timer_.seconds();
      if (reporter_.energy_) reporter_.energy_->resume();
    }
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    Reporter& reporter_;
    Timer timer_;
  };

 private:
  // A card's average over the window and the ranks.
  struct Energy {
    double joules_per_iteration = 0;
    double watts = 0;
  };
  // Since the last log line that reset it.
  struct Window {
    double loss_sum = 0;
    std::int64_t good = 0;
    std::int64_t all = 0;
    std::int64_t skipped = 0;
    std::int64_t nan = 0;
    double samples = 0;
    double excluded_seconds = 0;
    Timer timer;
    [[nodiscard]] double seconds() const { return timer.seconds() - excluded_seconds; }
  };

  [[nodiscard]] bool line_due(std::int64_t iteration) const;
  [[nodiscard]] bool progress_due(std::int64_t iteration);
  [[nodiscard]] bool events_due(std::int64_t iteration) const;
  [[nodiscard]] MemoryStatistics memory() const;
  void restart_window();
  // Collective; none without --log-energy.
  [[nodiscard]] std::optional<Energy> energy();
  [[nodiscard]] double flops_of(double num_samples) const;
  // Of the whole run so far.
  [[nodiscard]] double trained_samples(const TrainState& state) const;
  [[nodiscard]] double tflops_per_rank(double num_samples, double seconds) const;
  void write_metrics(const TrainState& state, const StepReport& report);
  void write_events(const TrainState& state, const StepReport& report);
  void write_line(const TrainState& state);
  void report_memory(std::int64_t iteration);
  void report_step_timers(std::int64_t iteration);

  const config::RunConfig& config_;
  std::int64_t rank_;
  std::int64_t world_size_;
  bool speaks_;
  const tensor::MemoryMeter* meter_;
  Timers timers_;
  comm::ParallelContext* context_ = nullptr;
  Device device_{"cpu"};
  std::unique_ptr<MetricsFile> metrics_;
  std::unique_ptr<EventFile> events_;
  std::unique_ptr<ProgressFile> progress_;
  std::optional<EnergyMeter> energy_;
  Window window_;
  StepReport last_;
  std::optional<Energy> last_energy_;  // where the step's line is due
  std::int64_t first_iteration_ = 0;
  std::int64_t steps_since_timers_ = 0;
  bool memory_reported_ = false;
  Timer since_progress_;
};

}  // namespace pentatron::training
