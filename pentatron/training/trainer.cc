// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/trainer.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <csignal>
#include <cstring>
#include <exception>
#include <filesystem>
#include <optional>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/base/log.h"
#include "pentatron/base/screen.h"
#include "pentatron/base/timer.h"
#include "pentatron/checkpoint/save_folder.h"
#include "pentatron/comm/parallel_context.h"
#include "pentatron/comm/phase.h"
#include "pentatron/config/batch_schedule.h"
#include "pentatron/config/validate.h"
#include "pentatron/optimizer/schedule.h"
#include "pentatron/tensor/memory.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tokenizers/tokenizer_files.h"
#include "pentatron/training/checkpointing.h"
#include "pentatron/training/data.h"
#include "pentatron/training/engine.h"
#include "pentatron/training/log_format.h"
#include "pentatron/training/model_parts.h"
#include "pentatron/training/reporter.h"
#include "pentatron/training/run_state.h"
#include "pentatron/training/run_trace.h"
#include "pentatron/training/samples.h"
#include "pentatron/training/step_reruns.h"
#include "pentatron/training/teacher.h"

namespace pentatron::training {
namespace {

// What a run that is stopped by a signal says last.
std::string stop_notice(const config::CheckpointConfig& options, int signal, std::int64_t iteration,
                        std::int64_t kept) {
  const std::string stopped =
      fmt::format("stopped by {} at iteration {}: ",
                  signal == SIGINT ? std::string("Ctrl-C") : strsignal(signal), iteration);
  if (kept >= 0 && !options.save.empty()) {
    return stopped + fmt::format(
                         "the checkpoint of iteration {} in {} is kept; the same command with "
                         "--load {} goes on from there",
                         kept, options.save, options.save);
  }
  if (!options.save.empty()) {
    return stopped + fmt::format(
                         "nothing was saved in {} yet; a smaller --save-interval, or "
                         "--exit-signal-handler, which saves before it stops, keeps more",
                         options.save);
  }
  return stopped + "nothing is kept, this run has no --save";
}

// One rank's run from data to exit.
class Trainer {
 public:
  Trainer(const config::RunConfig& config, comm::Backend& backend, const TrainerHooks& hooks,
          Device device);
  TrainerReport run();

 private:
  void build();
  void load();
  void train();
  [[nodiscard]] std::vector<Batch> next_batches();
  void take_batches_ahead();
  void run_iteration();
  void pass_over_iteration();
  [[nodiscard]] std::optional<RejectedStep> rejected_step() const;
  // What is run twice (--rerun-mode). True: the run ends here, no update was made.
  bool ends_before_step(const std::vector<Batch>& batches, const StepInputs& inputs);
  bool ends_on_result(const std::vector<Batch>& batches, const StepInputs& inputs,
                      const StepResult& result);
  void end_by_verdict(Verdict verdict, const StepNumbers& first, const StepNumbers& second,
                      bool injected);
  [[nodiscard]] std::vector<std::string> devices_of_ranks();
  void evaluate(const std::string& where, const char* kind, datasets::DataSplit split);
  void evaluate_on(const EvaluationSet& set, const std::string& where, const char* kind,
                   std::int64_t consumed);
  void write_samples();
  [[nodiscard]] bool saves() const {
    return !config_.checkpoint.save.empty() && !config_.training.skip_train;
  }
  void save();
  // Saves and says why the run ends before its time.
  void leave(const char* reason, const std::string& told);
  bool should_exit();
  bool killed();
  [[nodiscard]] bool time_to_evaluate() const;
  bool agree(bool mine) {
    return comm::all_reduce_value(context_->world(), mine ? 1.0 : 0.0, comm::ReduceOp::kMax) > 0;
  }
  template <typename... Args>
  void say(fmt::format_string<Args...> format, Args&&... args) {
    reporter_.say(format, std::forward<Args>(args)...);
  }

  config::RunConfig config_;
  comm::Backend& backend_;
  const TrainerHooks& hooks_;
  Device device_;
  Timer since_start_;
  Reporter reporter_;
  RunTrace trace_;
  std::unique_ptr<tokenizers::Tokenizer> tokenizer_;
  std::vector<std::pair<std::string, std::string>> tokenizer_files_;  // for checkpoints; rank 0's
  std::unique_ptr<comm::ParallelContext> context_;
  std::unique_ptr<checkpoint::FolderLock> save_lock_;  // rank 0's, from start to end
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<TrainingData> data_;
  std::unique_ptr<BatchStream> train_stream_;
  struct {
    bool ready = false;
    std::vector<Batch> batches;
    std::exception_ptr error;
  } ahead_;  // of the next step
  config::BatchSchedule batches_;
  StepReruns reruns_;
  DeterminismStats determinism_;
  std::optional<RejectedStep> rejected_;  // of the run that this one resumes
  std::optional<StepRates> rates_;
  TrainState state_;
  std::int64_t loaded_iteration_ = -1;
  std::int64_t saved_iteration_ = -1;
  TrainerReport report_;
  std::int64_t first_iteration_ = 0;
  bool final_ = false;  // the evaluations after training
  // For a stop signal's last words, which another thread writes.
  std::atomic<std::int64_t> iteration_now_{0};
  std::atomic<std::int64_t> kept_iteration_{-1};
  std::optional<screen::StopNotice> stop_notice_;
};

Trainer::Trainer(const config::RunConfig& config, comm::Backend& backend, const TrainerHooks& hooks,
                 Device device)
    : config_(config),
      backend_(backend),
      hooks_(hooks),
      device_(device),
      reporter_(config_, backend.rank(), backend.world_size(), hooks.memory, hooks.view),
      trace_(config_, backend.rank(), device),
      batches_(config::batch_schedule(config)),
      reruns_(config) {
  config_.parallel.rank = backend.rank();
  reporter_.timers().set_trace(trace_.trace());
  // A length in samples is one in whole iterations.
  config::TrainingConfig& t = config_.training;
  if (t.train_samples > 0) t.train_iters = batches_.iterations_for(t.train_samples);
  if (!reporter_.is_logging_rank()) return;
  stop_notice_.emplace([this](int signal) {
    return stop_notice(config_.checkpoint, signal, iteration_now_.load(), kept_iteration_.load());
  });
}

void Trainer::build() {
  if (config_.logging.log_energy) reporter_.measure_energy(gpu_energy_counter(device_));
  tokenizer_ = make_run_tokenizer(config_);
  if (saves() && backend_.rank() == 0) {
    tokenizer_files_ = tokenizers::read_tokenizer_files(
        tokenizers::tokenizer_options(config_.data, config_.model.vocab_size));
  }
  check_sample_prompts(config_, *tokenizer_);
  say(" > padded vocab (size: {}) with {} dummy tokens (new size: {})", config_.model.vocab_size,
      config_.model.padded_vocab_size - config_.model.vocab_size, config_.model.padded_vocab_size);
  context_ = std::make_unique<comm::ParallelContext>(backend_, comm::make_grids(config_.parallel));
  log::set_thread_label(backend_.world_size() > 1 ? context_->label() : "");
  trace_.set_process(fmt::format("rank {} ({})", backend_.rank(), context_->label()));
  if (saves())
    save_lock_ = checkpoint::open_save_folder(config_.checkpoint.save, context_->world());
  // Rank 0 makes shared memory of the caches first; the others find them.
  comm::note_phase(backend_, "building the data");
  reporter_.phase("reading the data");
  const ResumePoint point = resume_point(config_.checkpoint);
  const auto read_data = [&] {
    data_ = std::make_unique<TrainingData>(config_, *tokenizer_, point);
  };
  if (backend_.rank() == 0) read_data();
  context_->world().barrier();
  if (backend_.rank() != 0) read_data();
  check_same_data(*context_, data_->files());
  say("time to initialize megatron (seconds): {:.3f}",
      hooks_.seconds_before_start + since_start_.seconds());
  say("[after megatron is initialized] datetime: {}", current_datetime());
  comm::note_phase(backend_, "building the model");
  reporter_.phase("building the model");
  engine_ = std::make_unique<Engine>(config_, *context_, device_);
  if (saves()) check_room_for_save(*engine_);
  reporter_.connect(*context_, device_);
  engine_->set_timers(&reporter_.timers());
  if (context_->replicas().rank() == 0) {
    log::print_line(fmt::format(
        " > number of parameters on (tensor, gtp_weight_remat, pipeline) model parallel rank ({}, "
        "0, {}): {}",
        context_->coordinate("tp"), context_->coordinate("pp"), engine_->num_local_parameters()));
  }
  const auto parts = model_parts(*engine_);
  say("{}", weight_decay_line(parts, config_.optimizer.weight_decay));
  if (engine_->teacher() != nullptr) say("{}", engine_->teacher()->line());
  if (config_.model.use_mup) {
    say("{}", optimizer::width_scaling_line(config_.model, config_.optimizer));
  }
  say("[after model, optimizer, and learning rate scheduler are built] datetime: {}",
      current_datetime());
  const datasets::SampleCounts& counts = data_->counts();
  say(" > datasets target sizes (minimum size):");
  say("    train:      {}", counts.train);
  say("    validation: {}", counts.valid);
  say("    test:       {}", counts.test);
  say("[after dataloaders are built] datetime: {}", current_datetime());
}

void Trainer::load() {
  state_ = new_state(config_, *data_, *tokenizer_);
  comm::note_phase(backend_, "loading the checkpoint");
  if (!config_.checkpoint.load.empty()) reporter_.phase("loading the checkpoint");
  const LoadResult result = load_run(*engine_, batches_, config_, state_);
  rates_.emplace(config_);
  loaded_iteration_ = result.iteration;
  // With --finetune the run begins at 0, whatever was loaded.
  const bool resumes = result.loaded && state_.iteration == result.iteration;
  if (resumes && config_.checkpoint.load == config_.checkpoint.save) {
    saved_iteration_ = loaded_iteration_;
    kept_iteration_.store(saved_iteration_);
  }
  if (result.loaded) {
    reporter_.tell(state_, fmt::format("{} from {}", resumes ? "goes on" : "weights",
                                       config_.checkpoint.load));
  }
  first_iteration_ = state_.iteration + 1;
  if (resumes && reruns_.validates()) rejected_ = rejected_step();
  reporter_.open(state_);
}

// What an earlier run left for this one to run again, if it is of this very step and layout.
std::optional<RejectedStep> Trainer::rejected_step() const {
  std::optional<RejectedStep> found = read_rejected_step(config_.checkpoint.load);
  if (!found || found->iteration != first_iteration_) return std::nullopt;
  if (std::ssize(found->devices) == backend_.world_size()) return found;
  if (reporter_.is_logging_rank()) {
    log::warn("iteration {} was rejected on {} ranks, here are {}: it is not compared",
              found->iteration, found->devices.size(), backend_.world_size());
  }
  return std::nullopt;
}

std::vector<Batch> Trainer::next_batches() {
  if (ahead_.error) std::rethrow_exception(std::exchange(ahead_.error, nullptr));
  if (ahead_.ready) {
    ahead_.ready = false;
    return std::move(ahead_.batches);
  }
  const TimedScope timed(&reporter_.timers(), "batch-generator", 2);
  return train_stream_->next();
}

// While a GPU computes, the host takes the next step's samples. What goes wrong with them is told
// when they are used.
void Trainer::take_batches_ahead() {
  const std::int64_t next = state_.iteration + 2;
  if (device_.is_cpu() || next > config_.training.train_iters || passes_over(config_, next)) return;
  try {
    ahead_.batches = next_batches();
    ahead_.ready = true;
  } catch (...) {
    ahead_.error = std::current_exception();
  }
}

// The data goes by, nothing is learnt from it.
void Trainer::pass_over_iteration() {
  const std::int64_t batch = batches_.size_at(state_.consumed_train_samples);
  train_stream_->skip();
  count_passed_over(batch, state_);
  reporter_.passed_over(state_);
}

void Trainer::run_iteration() {
  const Timer timer;
  const std::int64_t batch = batches_.size_at(state_.consumed_train_samples);
  const StepInputs inputs = rates_->inputs(state_);
  const double waited_before = train_stream_->wait_seconds();
  const std::vector<Batch> batches = next_batches();
  if (ends_before_step(batches, inputs)) return;
  trace_.before_iteration(state_.iteration);
  const Timer host;
  engine_->launch_step(batches, inputs);
  const double host_seconds = host.seconds();
  take_batches_ahead();
  const StepResult result = engine_->read_step();
  trace_.after_iteration(state_.iteration + 1);
  if (ends_on_result(batches, inputs, result)) return;
  count_step(config_, result, batch, state_);
  iteration_now_.store(state_.iteration);
  check_finite(config_, result, batch, state_);
  check_spikes(config_, result, reporter_.is_logging_rank(), state_);
  report_.last_loss = result.loss;
  const double seconds = timer.seconds();
  nn::StepScalars scalars = result.scalars;
  if (reporter_.params_norm_due(state_.iteration)) {
    scalars.set("params norm", engine_->optimizer().parameter_norm());
  }
  // Rate and scale as the line has them are the next update's.
  scalars.set("learning rate", rates_->schedule().lr(state_.scheduler_samples));
  scalars.set("applied learning rate", inputs.lr);
  scalars.set("applied loss scale", result.loss_scale);
  scalars.set("weight decay", inputs.weight_decay);
  scalars.set("global batch size", static_cast<double>(batch));
  scalars.set("seconds", seconds);
  scalars.set("host", host_seconds);
  scalars.set("data wait", train_stream_->wait_seconds() - waited_before);
  reporter_.step(state_, scalars);
  reporter_.end_iteration(state_);
}

std::vector<std::string> Trainer::devices_of_ranks() {
  constexpr std::size_t kMaxName = 256;
  std::array<char, kMaxName> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  return comm::all_gather_bytes(context_->world(),
                                fmt::format("{} {}", host.data(), device_.str()));
}

bool Trainer::ends_before_step(const std::vector<Batch>& batches, const StepInputs& inputs) {
  const std::int64_t iteration = state_.iteration + 1;
  if (reruns_.reports()) {
    const StepResult first = engine_->forward_backward(batches);
    const StepResult second = engine_->forward_backward(batches);
    determinism_.add({.loss = first.loss}, {.loss = second.loss});
    if (determinism_.num_steps() % config_.training.log_interval == 0) {
      say("{}", determinism_.line());
    }
    return false;
  }
  if (rejected_) {
    const RejectedStep before = *std::exchange(rejected_, std::nullopt);
    // Should this one make an update: nothing of it is kept.
    const StepResult again = engine_->train_step(batches, inputs);
    const StepNumbers now{.loss = again.loss, .grad_norm = again.grad_norm};
    const Verdict verdict = StepReruns::elsewhere(before, now, devices_of_ranks());
    if (verdict != Verdict::kSameDevices && backend_.rank() == 0) {
      remove_rejected_step(config_.checkpoint.load);
    }
    end_by_verdict(verdict, before.numbers, now, false);
    return true;
  }
  // Of the first step no checkpoint could be kept.
  if (iteration == first_iteration_ || !reruns_.injects(iteration)) return false;
  if (reporter_.is_logging_rank()) {
    log::warn("iteration {}: injecting error type {}", iteration,
              config_.training.error_injection_type);
  }
  const StepNumbers first{.loss = engine_->forward_backward(batches).loss};
  const StepNumbers second{.loss = engine_->forward_backward(batches).loss};
  end_by_verdict(reruns_.in_place(first, second, true), first, second, true);
  return true;
}

// A result that is not finite left the parameters as they were: the step can be run again.
bool Trainer::ends_on_result(const std::vector<Batch>& batches, const StepInputs& inputs,
                             const StepResult& result) {
  if (result.finite || !config_.training.check_for_nan_in_loss_and_grad || !saves() ||
      !reruns_.validates() || state_.iteration + 1 == first_iteration_) {
    return false;
  }
  const StepResult again = engine_->train_step(batches, inputs);
  const StepNumbers first{.loss = result.loss, .grad_norm = result.grad_norm};
  const StepNumbers second{.loss = again.loss, .grad_norm = again.grad_norm};
  end_by_verdict(reruns_.in_place(first, second, false), first, second, false);
  return true;
}

void Trainer::end_by_verdict(Verdict verdict, const StepNumbers& first, const StepNumbers& second,
                             bool injected) {
  const std::int64_t iteration = state_.iteration + 1;
  report_.exit_code = exit_code_of(verdict);
  report_.exit_reason = "rerun";
  if (reporter_.is_logging_rank()) log::warn("{}", describe(verdict, iteration, first, second));
  if (verdict == Verdict::kReproduced && saves()) {
    const RejectedStep step = reruns_.rejected(iteration, first, injected, devices_of_ranks());
    leave("rerun", fmt::format("at iteration {}; resume it on other devices, where iteration {} "
                               "is compared",
                               state_.iteration, iteration));
    if (backend_.rank() == 0) write_rejected_step(config_.checkpoint.save, step);
    context_->world().barrier();
    return;
  }
  reporter_.last_line(state_);
  reporter_.left(state_, fmt::format("at iteration {}, with exit code {}", state_.iteration,
                                     report_.exit_code));
}

void Trainer::evaluate_on(const EvaluationSet& set, const std::string& where, const char* kind,
                          std::int64_t consumed) {
  const EvaluationResult result =
      evaluate_set(*engine_, set, consumed, [this](double share) { reporter_.phase_share(share); });
  reporter_.evaluation(state_, where, kind, set.name, result.loss(), result.num_valid_tokens,
                       final_);
}

void Trainer::evaluate(const std::string& where, const char* kind, datasets::DataSplit split) {
  const config::TrainingConfig& t = config_.training;
  const std::vector<EvaluationSet> sets = data_->evaluation_sets(split);
  if (sets.empty() || t.eval_iters == 0) return;
  // A whole set is always read from its start, the test set is read once.
  const bool goes_on = split == datasets::DataSplit::kValid && !t.full_validation;
  const Reporter::Pause pause(reporter_);
  reporter_.phase("evaluating");
  {
    const TimedScope timed(&reporter_.timers(), "evaluate", 0);
    for (const EvaluationSet& set : sets) {
      evaluate_on(set, where, kind, goes_on ? state_.consumed_valid_samples : 0);
    }
  }
  if (goes_on) state_.consumed_valid_samples += t.eval_iters * t.eval_global_batch_size;
  reporter_.phase("");
  reporter_.show_timers({"evaluate"});
}

void Trainer::write_samples() {
  if (config_.logging.sample_prompt.empty()) return;
  // All ranks of the model generate together; the logging rank writes the text.
  const Reporter::Pause pause(reporter_);
  for (const Sample& sample : training::write_samples(*engine_, *tokenizer_)) {
    if (reporter_.is_logging_rank()) reporter_.sample(state_, sample, final_);
  }
  engine_->optimizer().settle();
}

bool Trainer::time_to_evaluate() const {
  const config::TrainingConfig& t = config_.training;
  return t.eval_interval > 0 && state_.iteration % t.eval_interval == 0 &&
         state_.iteration >= t.start_eval_at_iter;
}

void Trainer::save() {
  if (config_.checkpoint.save.empty() || saved_iteration_ == state_.iteration) return;
  const Reporter::Pause pause(reporter_);
  reporter_.phase("saving");
  {
    const TimedScope timed(&reporter_.timers(), "save-checkpoint", 0);
    comm::note_phase(backend_, "saving");
    save_engine(*engine_, state_, loaded_iteration_, save_lock_.get(), tokenizer_files_);
  }
  reporter_.show_timers({"save-checkpoint"});
  reporter_.phase("");
  saved_iteration_ = state_.iteration;
  kept_iteration_.store(saved_iteration_);
  reporter_.saved(state_, fmt::format("{}/iter_{:07d}", config_.checkpoint.save, saved_iteration_));
}

void Trainer::leave(const char* reason, const std::string& told) {
  reporter_.last_line(state_);
  // What was loaded or made by no step is not saved again.
  if (state_.iteration >= first_iteration_) save();
  reporter_.left(state_, told);
  report_.exit_reason = reason;
}

bool Trainer::should_exit() {
  const config::TrainingConfig& t = config_.training;
  if (t.exit_signal_handler && agree(hooks_.exit_signal_seen && hooks_.exit_signal_seen())) {
    leave("signal", fmt::format("after receiving {}.", t.exit_signal));
    return true;
  }
  if (t.exit_duration_in_mins > 0) {
    constexpr double kSecondsPerMinute = 60.0;
    const double minutes =
        (hooks_.seconds_before_start + since_start_.seconds()) / kSecondsPerMinute;
    if (agree(minutes > t.exit_duration_in_mins)) {
      leave("duration", fmt::format("after {} minutes", minutes));
      return true;
    }
  }
  if (t.exit_interval > 0 && state_.iteration % t.exit_interval == 0) {
    leave("interval", fmt::format("at iteration {}", state_.iteration));
    return true;
  }
  return false;
}

// Before a step: nobody need wait for one more.
bool Trainer::killed() {
  const std::string& file = config_.training.kill_switch_file;
  if (file.empty()) return false;
  std::error_code ignored;
  if (!agree(std::filesystem::exists(file, ignored))) return false;
  leave("kill switch", fmt::format("because {} exists", file));
  return true;
}

void Trainer::train() {
  const config::TrainingConfig& t = config_.training;
  if (state_.iteration >= t.train_iters) return;
  const std::int64_t needed =
      batches_.samples_after(t.train_iters - state_.iteration, state_.consumed_train_samples);
  PENTATRON_CHECK(needed <= data_->train()->num_samples(), kConfig,
                  "{} training samples are consumed and {} iterations are left, which takes {} in "
                  "all, but the data was drawn for {}; lower --train-iters or the batch size, or "
                  "start a new run from these weights with --finetune",
                  state_.consumed_train_samples, t.train_iters - state_.iteration, needed,
                  data_->train()->num_samples());
  train_stream_ = std::make_unique<BatchStream>(
      *data_->train(), config_, context_->data_rank(), state_.consumed_train_samples,
      engine_->policy(), BatchStream::Use::kTraining, device_, engine_->dynamic_context());
  reporter_.begin_training(state_);
  reporter_.phase("");
  while (state_.iteration < t.train_iters) {
    if (killed()) return;
    const std::int64_t batch = batches_.size_at(state_.consumed_train_samples);
    if (passes_over(config_, state_.iteration + 1)) {
      pass_over_iteration();
    } else {
      run_iteration();
      if (report_.exit_code != 0) return;
    }
    const bool last = state_.iteration == t.train_iters;
    if (time_to_evaluate()) {
      evaluate(fmt::format("iteration {}", state_.iteration), "validation",
               datasets::DataSplit::kValid);
      write_samples();
    }
    const std::int64_t save_interval = config_.checkpoint.save_interval;
    const bool batch_changes = batches_.size_at(state_.consumed_train_samples) != batch;
    if (batch_changes || (save_interval > 0 && state_.iteration % save_interval == 0)) save();
    if (!last && should_exit()) return;
  }
}

TrainerReport Trainer::run() {
  build();
  load();
  say("[before the start of training step] datetime: {}", current_datetime());
  report_.exit_reason = "iterations";
  if (!config_.training.skip_train) {
    train();
    trace_.finish();
  }
  if (report_.exit_reason == "iterations") {
    reporter_.last_line(state_);
    say("[after training is done] datetime: {}", current_datetime());
    if (!config_.training.skip_train) save();
    const std::string at = fmt::format("iteration {} on ", state_.iteration);
    final_ = true;
    evaluate(at + "validation set", "validation", datasets::DataSplit::kValid);
    write_samples();
    evaluate(at + "test set", "test", datasets::DataSplit::kTest);
    reporter_.finished(state_);
  }
  reporter_.close();
  report_.iteration = state_.iteration;
  report_.consumed_samples = state_.consumed_train_samples;
  return report_;
}

}  // namespace

TrainerReport run_training(const config::RunConfig& config, comm::Backend& backend,
                           const TrainerHooks& hooks, Device device) {
  return Trainer(config, backend, hooks, device).run();
}

}  // namespace pentatron::training
