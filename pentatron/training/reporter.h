// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <initializer_list>
#include <map>
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
#include "pentatron/nn/step_scalars.h"
#include "pentatron/training/gpu_energy.h"
#include "pentatron/training/log_format.h"
#include "pentatron/training/memory_report.h"
#include "pentatron/training/metrics.h"
#include "pentatron/training/progress.h"
#include "pentatron/training/samples.h"
#include "pentatron/training/terminal_view.h"
#include "pentatron/training/train_state.h"
#include "pentatron/training/utilisation.h"

namespace pentatron::training {

// Everything that a run tells about itself: lines on the screen, timers, memory, the metrics file,
// TensorBoard's events, progress.txt. Every rank owns one and tells it the same things (where
// timers are read, ranks exchange them); the last rank, the logging rank, writes. Holds no model
// and no data, changes no result.
class Reporter final {
 public:
  // `config` is the run's and outlives the reporter; its vocabulary is resolved before the first
  // step. `memory`: of this process, may be null. `view`: takes what would be Megatron's lines; may
  // be null, outlives the reporter.
  Reporter(const config::RunConfig& config, std::int64_t rank, std::int64_t world_size,
           const tensor::MemoryMeter* memory, TerminalView* view = nullptr);

  // From now on ranks can exchange timers, which wait for the device. The context outlives the
  // reporter.
  void connect(comm::ParallelContext& context, Device device);
  // --log-energy: of this rank's GPU. Every rank has one, or none.
  void measure_energy(EnergyCounter counter);
  // Opens the files of a run whose newest step is `state`'s. The metrics file loses what it holds
  // of later ones; TensorBoard's gets a file beside the older ones, as Megatron's does.
  void open(const TrainState& state);
  // Writes what still waits and closes the files; their errors come here.
  void close();

  [[nodiscard]] bool is_logging_rank() const { return is_logging_rank_; }
  [[nodiscard]] Timers& timers() { return timers_; }
  template <typename... Args>
  void say(fmt::format_string<Args...> format, Args&&... args) const {
    if (is_logging_rank_) log::print_line(fmt::format(format, std::forward<Args>(args)...));
  }

  // What the run does now; empty: its training loop. Of interest to a terminal only.
  void phase(const char* name) const {
    if (view_ != nullptr) view_->phase(name);
  }
  void phase_share(double share) const {
    if (view_ != nullptr) view_->phase_share(share);
  }
  // What a terminal is told in a line of its own, beside Megatron's.
  void tell(const TrainState& state, std::string_view text) const {
    if (view_ != nullptr) view_->event(title(state), text);
  }
  // The run ends before its time: "after 5 minutes".
  void left(const TrainState& state, const std::string& told);
  // The run ends, whole or not; a terminal is told what it came to.
  void finished(const TrainState& state);

  // The training loop begins: forgets what the time was spent on before.
  void begin_training(const TrainState& state);
  // Whether the report of step `iteration` wants the norm of all weights.
  [[nodiscard]] bool params_norm_due(std::int64_t iteration) const;
  // After each step; `state` counts it already. `scalars`: all that the step tells, among it
  // "skipped" (1: no update was made), "global batch size" and "seconds". The metrics file has
  // every step, TensorBoard the due ones; what is not finite is in the metrics file only.
  void step(const TrainState& state, const nn::StepScalars& scalars);
  // After each step. Prints Megatron's line, timers and memory when they are due: at the first
  // iteration of this process (whose window then goes on), at multiples of --log-interval and at
  // the run's last iteration.
  void end_iteration(const TrainState& state);
  // An iteration without a step: it has no line, and the next one is the first if this was.
  void passed_over(const TrainState& state);
  // The process ends: the line of its last step, unless it was printed.
  void last_line(const TrainState& state);
  // kind: "validation" or "test"; `where`: as format_evaluation_block has it; `set_name`: of one of
  // several. `final_one`: after training, written anew when a finished run starts again.
  void evaluation(const TrainState& state, const std::string& where, const char* kind,
                  const std::string& set_name, double loss, double num_valid_tokens,
                  bool final_one);
  void sample(const TrainState& state, const Sample& sample, bool final_one);
  // `folder`: of the checkpoint.
  void saved(const TrainState& state, const std::string& folder);
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
  // A GPU's average over the window and the ranks.
  struct Energy {
    double joules_per_iteration = 0;
    double watts = 0;
  };
  // Since the last log line that reset it.
  struct Window {
    struct Mean {
      double sum = 0;
      std::int64_t count = 0;
    };
    std::map<std::string, Mean> losses;  // over steps that made an update and had such a loss
    std::int64_t all = 0;                // steps
    double samples = 0;
    TrainState before = {};  // counters at its start
    double excluded_seconds = 0;
    Timer timer;
    [[nodiscard]] double seconds() const { return timer.seconds() - excluded_seconds; }
  };

  [[nodiscard]] bool line_due(std::int64_t iteration) const;
  [[nodiscard]] RowTitle title(const TrainState& state) const {
    return {.iteration = state.iteration, .train_iters = config_.training.train_iters};
  }
  void print_evaluation(const TrainState& state, const std::string& where, const char* kind,
                        const std::string& set_name, double loss, bool final_one);
  void print_row(const TrainState& state, const nn::StepScalars& scalars, double seconds);
  [[nodiscard]] bool progress_due(std::int64_t iteration);
  [[nodiscard]] bool events_due(std::int64_t iteration) const;
  [[nodiscard]] MemoryStatistics memory() const;
  void restart_window(const TrainState& state);
  // Collective; none without --log-energy.
  [[nodiscard]] std::optional<Energy> energy();
  [[nodiscard]] double flops_of(double num_samples) const;
  // Of the whole run so far.
  [[nodiscard]] double trained_samples(const TrainState& state) const;
  [[nodiscard]] double tflops_per_rank(double num_samples, double seconds) const;
  // Of the iteration that `state` counts already.
  void write_metrics(const TrainState& state);
  void write_events(const TrainState& state);
  void write_line(const TrainState& state);
  void write_event(const TrainState& state, const nn::StepScalar& scalar);
  [[nodiscard]] nn::StepScalars line_scalars(const TrainState& state, double seconds,
                                             const std::optional<Energy>& energy) const;
  void report_memory(std::int64_t iteration);
  void report_step_timers(std::int64_t iteration);

  const config::RunConfig& config_;
  std::int64_t rank_;
  std::int64_t world_size_;
  bool is_logging_rank_;
  const tensor::MemoryMeter* meter_;
  TerminalView* view_;  // of the logging rank
  Timers timers_;
  comm::ParallelContext* context_ = nullptr;
  Device device_{"cpu"};
  std::unique_ptr<MetricsFile> metrics_;
  std::unique_ptr<EventFile> events_;
  std::unique_ptr<ProgressFile> progress_;
  std::optional<EnergyMeter> energy_;
  std::optional<UtilisationMeter> utilisation_;  // where there is a metrics file
  Window window_;
  nn::StepScalars last_;               // of the last step
  std::optional<Energy> last_energy_;  // where the step's line is due
  std::int64_t first_iteration_ = 0;
  std::int64_t last_step_ = 0;  // its iteration
  std::int64_t last_line_ = 0;  // the newest iteration with a line
  std::int64_t steps_since_timers_ = 0;
  bool memory_reported_ = false;
  bool final_line_ = false;      // the line to be written is the run's last
  std::int64_t evaluated_ = -1;  // the iteration of the last evaluation in training
  std::string saved_;            // the newest checkpoint's folder
  double tokens_ = 0;            // of this process's steps
  Timer since_progress_;
  Timer since_training_;
};

}  // namespace pentatron::training
