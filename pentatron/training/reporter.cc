// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/reporter.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "pentatron/base/format.h"
#include "pentatron/config/print.h"
#include "pentatron/tensor/device.h"
#include "pentatron/training/run_record.h"
#include "pentatron/training/scalar_forms.h"
#include "pentatron/training/timer_report.h"

namespace pentatron::training {
namespace {

constexpr double kShortest = 1e-9;  // seconds; keeps rates finite

}  // namespace

Reporter::Reporter(const config::RunConfig& config, std::int64_t rank, std::int64_t world_size,
                   const tensor::MemoryMeter* memory, TerminalView* view)
    : config_(config),
      rank_(rank),
      world_size_(world_size),
      is_logging_rank_(rank == world_size - 1),
      meter_(memory),
      view_(is_logging_rank_ ? view : nullptr),
      timers_(static_cast<int>(config.logging.timing_log_level)) {}

void Reporter::connect(comm::ParallelContext& context, Device device) {
  context_ = &context;
  device_ = device;
  if (!device.is_cpu()) timers_.set_synchronize([device] { tensor::synchronize(device); });
  if (config_.logging.barrier_with_l1_time) {
    timers_.set_barrier([this] { context_->world().barrier(); });
  }
}

void Reporter::measure_energy(EnergyCounter counter) { energy_.emplace(std::move(counter)); }

void Reporter::open(const TrainState& state) {
  if (!is_logging_rank_) return;
  const config::LoggingConfig& logging = config_.logging;
  metrics_ = std::make_unique<MetricsFile>(config_.training.metrics_file, state.iteration);
  if (!config_.training.metrics_file.empty()) {
    metrics_->write_members("run", state.iteration, run_record(config_, world_size_, device_));
    utilisation_.emplace(gpu_busy_share(device_));
  }
  if (!logging.tensorboard_dir.empty()) {
    events_ = std::make_unique<EventFile>(logging.tensorboard_dir, logging.tensorboard_queue_size);
    for (const auto& [name, value] : config::argument_list(config_)) {
      events_->text(name, value, state.iteration);
    }
  }
  if (logging.log_progress) {
    progress_ = std::make_unique<ProgressFile>(config_.checkpoint.save, world_size_,
                                               flops_of(trained_samples(state)));
  }
}

void Reporter::close() {
  if (events_) events_->flush();
  events_.reset();
}

void Reporter::restart_window(const TrainState& state) {
  window_ = Window{};
  window_.before = state;
  if (energy_) energy_->restart();
}

std::optional<Reporter::Energy> Reporter::energy() {
  if (!energy_ || context_ == nullptr) return std::nullopt;
  // Before ranks wait for each other here.
  const double mine = energy_->joules();
  const double seconds = window_.seconds();
  const double joules =
      comm::all_reduce_value(context_->world(), mine) / static_cast<double>(world_size_);
  return Energy{
      .joules_per_iteration = joules / static_cast<double>(std::max<std::int64_t>(1, window_.all)),
      .watts = joules / std::max(kShortest, seconds)};
}

void Reporter::begin_training(const TrainState& state) {
  restart_window(state);
  first_iteration_ = state.iteration + 1;
  since_training_.restart();
}

bool Reporter::line_due(std::int64_t iteration) const {
  return iteration % config_.training.log_interval == 0 || iteration == first_iteration_ ||
         iteration == config_.training.train_iters;
}

bool Reporter::events_due(std::int64_t iteration) const {
  return !config_.logging.tensorboard_dir.empty() &&
         iteration % config_.logging.tensorboard_log_interval == 0;
}

bool Reporter::params_norm_due(std::int64_t iteration) const {
  return config_.training.log_params_norm && (line_due(iteration) || events_due(iteration));
}

MemoryStatistics Reporter::memory() const { return memory_statistics(device_, meter_); }

double Reporter::flops_of(double num_samples) const {
  return model_flops(config_.model, num_samples);
}

double Reporter::trained_samples(const TrainState& state) const {
  return static_cast<double>(state.consumed_train_samples - state.skipped_train_samples);
}

double Reporter::tflops_per_rank(double num_samples, double seconds) const {
  return flops_of(num_samples) /
         (std::max(kShortest, seconds) * 1e12 * static_cast<double>(world_size_));
}

void Reporter::step(const TrainState& state, const nn::StepScalars& scalars) {
  ++window_.all;
  ++steps_since_timers_;
  window_.samples += scalars.find("global batch size").value_or(0);
  const bool skipped = scalars.find("skipped").value_or(0) != 0;
  for (const nn::StepScalar& scalar : scalars) {
    if (skipped || scalar.kind != nn::ScalarKind::kLoss) continue;
    Window::Mean& mean = window_.losses[scalar.name];
    mean.sum += scalar.value;
    ++mean.count;
  }
  last_ = scalars;
  last_step_ = state.iteration;
  last_energy_ = line_due(state.iteration) ? energy() : std::nullopt;
  if (!is_logging_rank_) return;
  const double tokens =
      scalars.find("global batch size").value_or(0) * static_cast<double>(config_.model.seq_length);
  tokens_ += tokens;
  if (view_ != nullptr) {
    view_->step(title(state), scalars.find("lm loss").value_or(std::nan("")), tokens,
                scalars.find("seconds").value_or(0));
  }
  write_metrics(state);
  if (events_due(state.iteration)) write_events(state);
}

void Reporter::end_iteration(const TrainState& state) {
  const std::int64_t iteration = state.iteration;
  const bool due = line_due(iteration);
  if (due) {
    write_line(state);
    report_step_timers(iteration);
  }
  const std::int64_t every = config_.logging.log_memory_interval;
  // Twice at the start: the optimizer's moments come with the first update.
  const bool first_reports = due && !memory_reported_;
  if (first_reports || (every > 0 && iteration % every == 0)) report_memory(iteration);
  if (first_reports && iteration > first_iteration_) memory_reported_ = true;
  if (iteration % config_.training.log_interval == 0) restart_window(state);
}

void Reporter::passed_over(const TrainState& state) {
  if (state.iteration == first_iteration_) ++first_iteration_;
}

void Reporter::last_line(const TrainState& state) {
  if (last_step_ <= last_line_) return;
  last_energy_ = energy();
  final_line_ = true;
  write_line(state);
  report_step_timers(state.iteration);
}

void Reporter::write_metrics(const TrainState& state) {
  if (!metrics_ || config_.training.metrics_file.empty()) return;
  const double samples = last_.find("global batch size").value_or(0);
  const double seconds = last_.find("seconds").value_or(0);
  const MemoryStatistics now = memory();
  nn::StepScalars scalars = last_;
  scalars.set("consumed samples", static_cast<double>(state.consumed_train_samples));
  scalars.set("tokens per second", samples * static_cast<double>(config_.model.seq_length) /
                                       std::max(kShortest, seconds));
  scalars.set("tflops per gpu", tflops_per_rank(samples, seconds));
  scalars.set("memory allocated", static_cast<double>(now.allocated));
  scalars.set("memory reserved", static_cast<double>(now.reserved));
  if (last_energy_) {
    scalars.set("energy per GPU (J/iter/GPU)", last_energy_->joules_per_iteration);
    scalars.set("power per GPU (W/GPU)", last_energy_->watts);
  }
  scalars.set("consumed tokens", static_cast<double>(state.consumed_train_samples) *
                                     static_cast<double>(config_.model.seq_length));
  scalars.set("time", unix_seconds());
  const UtilisationMeter::Shares busy = utilisation_->read();
  if (std::isfinite(busy.cpu)) scalars.set("cpu utilisation", busy.cpu);
  if (std::isfinite(busy.gpu)) scalars.set("gpu utilisation", busy.gpu);
  MetricsFile::Values values;
  for (const nn::StepScalar& scalar : scalars) {
    const ScalarForm form = form_of(scalar);
    if (!form.metrics.empty()) values.emplace_back(form.metrics, scalar.value);
  }
  metrics_->write("train", state.iteration, values);
}

void Reporter::write_event(const TrainState& state, const nn::StepScalar& scalar) {
  const ScalarForm form = form_of(scalar);
  if (form.event.empty() || !std::isfinite(scalar.value)) return;
  events_->scalar(form.event, scalar.value, state.iteration);
  if (!form.by_samples) return;
  events_->scalar(form.event + " vs samples", scalar.value, state.consumed_train_samples);
}

void Reporter::write_events(const TrainState& state) {
  if (!events_) return;
  const config::LoggingConfig& logging = config_.logging;
  const bool skipped = last_.find("skipped").value_or(0) != 0;
  nn::StepScalars scalars;
  for (const nn::StepScalar& scalar : last_) {
    const bool hidden = scalar.name == "loss scale" && !logging.log_loss_scale_to_tensorboard;
    if (hidden || (skipped && scalar.kind == nn::ScalarKind::kLoss)) continue;
    scalars.set(scalar.name, scalar.value, scalar.kind);
  }
  if (state.skipped_train_samples > 0) {
    scalars.set("skipped samples", static_cast<double>(state.skipped_train_samples));
  }
  if (logging.log_world_size_to_tensorboard) {
    scalars.set("world size", static_cast<double>(world_size_));
  }
  if (logging.log_memory_to_tensorboard) {
    const MemoryStatistics now = memory();
    scalars.set("mem-reserved-bytes", static_cast<double>(now.reserved));
    scalars.set("mem-allocated-bytes", static_cast<double>(now.allocated));
    scalars.set("mem-max-allocated-bytes", static_cast<double>(now.max_allocated));
    scalars.set("mem-allocated-count", static_cast<double>(now.num_blocks));
  }
  for (const nn::StepScalar& scalar : scalars) write_event(state, scalar);
}

// `seconds`: of one step of the window.
nn::StepScalars Reporter::line_scalars(const TrainState& state, double seconds,
                                       const std::optional<Energy>& energy) const {
  const config::TrainingConfig& training = config_.training;
  nn::StepScalars scalars;
  const auto number = [&](const char* name, std::int64_t value) {
    scalars.set(name, static_cast<double>(value));
  };
  number("consumed samples", state.consumed_train_samples);
  if (state.skipped_train_samples > 0) number("skipped samples", state.skipped_train_samples);
  scalars.set("elapsed time per iteration (ms)", seconds * 1e3);
  if (training.log_throughput) {
    const auto count = static_cast<double>(std::max<std::int64_t>(1, window_.all));
    scalars.set("throughput per GPU (TFLOP/s/GPU)",
                tflops_per_rank(window_.samples / count, seconds));
  }
  if (energy) {
    scalars.set("energy per GPU (J/iter/GPU)", energy->joules_per_iteration);
    scalars.set("power per GPU (W/GPU)", energy->watts);
  }
  for (const nn::StepScalar& scalar : last_) {
    if (scalar.kind != nn::ScalarKind::kLoss) scalars.set(scalar.name, scalar.value, scalar.kind);
  }
  for (const auto& [name, mean] : window_.losses) {
    scalars.set(name, mean.sum / static_cast<double>(mean.count), nn::ScalarKind::kLoss);
  }
  number("number of skipped iterations",
         state.skipped_iterations - window_.before.skipped_iterations);
  number("number of nan iterations", state.nan_iterations - window_.before.nan_iterations);
  return scalars;
}

// `seconds`: of one step of the window.
void Reporter::print_row(const TrainState& state, const nn::StepScalars& scalars, double seconds) {
  const config::TrainingConfig& training = config_.training;
  const bool final_one = final_line_ || state.iteration == training.train_iters;
  const double rate = window_.samples * static_cast<double>(config_.model.seq_length) /
                      std::max(kShortest, window_.seconds());
  if (view_ != nullptr) return view_->row(title(state), scalars, rate, final_one);
  const std::string line = format_iteration_line({.timestamp = current_timestamp(),
                                                  .iteration = state.iteration,
                                                  .train_iters = training.train_iters},
                                                 scalars);
  if (config_.logging.quiet) {
    if (final_one) screen::print(line);
    return;
  }
  log::print_line(line);
  const std::int64_t left = training.train_iters - state.iteration;
  if (!progress_due(state.iteration)) return;
  log::info("{:.0f} tokens/s, {} of {} iterations, about {} left", rate, state.iteration,
            training.train_iters, format_duration(seconds * static_cast<double>(left)));
}

void Reporter::write_line(const TrainState& state) {
  // With --quiet the run's last line alone is printed, and may still have to be.
  const bool final_one = final_line_ || state.iteration == config_.training.train_iters;
  last_line_ = config_.logging.quiet && !final_one ? 0 : last_step_;
  const std::optional<Energy> energy = std::exchange(last_energy_, std::nullopt);
  if (!is_logging_rank_) return;
  const double seconds =
      window_.seconds() / static_cast<double>(std::max<std::int64_t>(1, window_.all));
  const nn::StepScalars scalars = line_scalars(state, seconds, energy);
  print_row(state, scalars, seconds);
  if (!events_) return;
  // What only a window has.
  for (const nn::StepScalar& scalar : scalars) {
    const bool energies = scalar.name.starts_with("energy per") || scalar.name.starts_with("power");
    const bool throughput =
        scalar.name.starts_with("throughput") && config_.logging.log_timers_to_tensorboard;
    if (energies || throughput) write_event(state, scalar);
  }
  if (!config_.logging.log_timers_to_tensorboard) return;
  write_event(state, {.name = "iteration time", .value = seconds});
}

// Iterations may be shorter than anyone can read.
bool Reporter::progress_due(std::int64_t iteration) {
  constexpr double kShortestPause = 1.0;  // seconds
  const bool due = iteration == first_iteration_ || iteration == config_.training.train_iters ||
                   since_progress_.seconds() >= kShortestPause;
  if (due) since_progress_ = Timer();
  return due;
}

void Reporter::report_memory(std::int64_t iteration) {
  // One rank of each part of the model.
  if (context_ == nullptr || context_->replicas().rank() != 0) return;
  const std::string report = format_memory_report(rank_, iteration, memory());
  if (view_ == nullptr) return log::print_line(report);
  if (config_.logging.log_memory_interval > 0) view_->note(report);
}

void Reporter::report_step_timers(std::int64_t iteration) {
  const auto count =
      static_cast<double>(std::max<std::int64_t>(1, std::exchange(steps_since_timers_, 0)));
  if (context_ == nullptr || !timers_.on(1)) return;
  const std::vector<TimerReading> readings = read_timers(timers_, context_->world(), step_timers());
  if (!is_logging_rank_ || readings.empty()) return;
  const std::string timers = format_timers(readings, config_.logging.timing_log_option, count);
  view_ == nullptr ? log::print_line(timers) : view_->note(timers);
  if (!events_ || !config_.logging.log_timers_to_tensorboard) return;
  for (const TimerReading& reading : readings) {
    events_->scalar(reading.name + "-time", reading.most() / count, iteration);
  }
}

void Reporter::show_timers(std::initializer_list<std::string_view> names) {
  const std::vector<TimerReading> readings =
      read_timers(timers_, context_->world(), std::span(names.begin(), names.size()));
  if (!is_logging_rank_ || readings.empty()) return;
  const std::string timers = format_timers(readings, config_.logging.timing_log_option, 1);
  if (view_ == nullptr) return log::print_line(timers);
  if (config_.logging.timing_log_level > 0) view_->note(timers);
}

void Reporter::print_evaluation(const TrainState& state, const std::string& where, const char* kind,
                                const std::string& set_name, double loss, bool final_one) {
  // A second loss at one iteration would puzzle: it is of the set's next samples.
  const bool again = final_one && std::string_view(kind) == "validation" &&
                     evaluated_ == state.iteration && !config_.training.full_validation;
  if (!final_one) evaluated_ = state.iteration;
  constexpr std::string_view kRemark = "on next samples";
  if (view_ != nullptr) {
    const std::string what = set_name.empty() ? kind : fmt::format("{} {}", kind, set_name);
    view_->evaluation(title(state), what, loss, again ? kRemark : "", final_one);
    return;
  }
  const std::string block = format_evaluation_block(where, loss, set_name);
  if (config_.logging.quiet) {
    if (final_one) screen::print(block);
    return;
  }
  log::print_line(block);
  if (!again) return;
  log::info("the last two validation losses are both of iteration {}: the second is {}",
            state.iteration, kRemark);
}

void Reporter::left(const TrainState& state, const std::string& told) {
  say("[exiting program {}] datetime: {}", told, current_datetime());
  if (view_ != nullptr) view_->event(title(state), "stopped " + told, Tone::kYellow);
  finished(state);
}

void Reporter::finished(const TrainState& state) {
  if (view_ == nullptr || tokens_ == 0) return;
  view_->summary({.iterations = state.iteration - first_iteration_ + 1,
                  .seconds = since_training_.seconds(),
                  .tokens = tokens_,
                  .checkpoint = saved_});
}

void Reporter::evaluation(const TrainState& state, const std::string& where, const char* kind,
                          const std::string& set_name, double loss, double num_valid_tokens,
                          bool final_one) {
  if (!is_logging_rank_) return;
  print_evaluation(state, where, kind, set_name, loss, final_one);
  MetricsFile::Values values{{"lm_loss", loss}, {"valid_tokens", num_valid_tokens}};
  if (final_one) values.emplace_back("final", 1.0);
  const std::string name = set_name.empty() ? kind : fmt::format("{}-{}", kind, set_name);
  metrics_->write(name, state.iteration, values);
  if (!events_) return;
  const auto both = [&](const std::string& tag, double value) {
    events_->scalar(tag, value, state.iteration);
    events_->scalar(tag + " vs samples", value, state.consumed_train_samples);
  };
  const std::string tag = "lm loss " + name;
  both(tag, loss);
  if (config_.logging.log_validation_ppl_to_tensorboard) both(tag + " ppl", perplexity(loss));
}

void Reporter::sample(const TrainState& state, const Sample& sample, bool final_one) {
  if (!is_logging_rank_) return;
  const std::string prompt = python_repr_text(sample.prompt);
  const std::string text = python_repr_text(sample.text);
  if (view_ == nullptr) {
    log::print_line(
        fmt::format(" sample at iteration {} | {} | {}", state.iteration, prompt, text));
  } else {
    view_->note(fmt::format("  sample {} {}", prompt, text));
  }
  MetricsFile::Values values;
  if (final_one) values.emplace_back("final", 1.0);
  metrics_->write("sample", state.iteration, values,
                  {{"prompt", sample.prompt}, {"text", sample.text}});
  if (events_) {
    events_->text(fmt::format("sample after {}", quoted_for_message(sample.prompt)), sample.text,
                  state.iteration);
  }
}

void Reporter::saved(const TrainState& state, const std::string& folder) {
  saved_ = folder;
  tell(state, "saved in " + folder);
  if (!progress_) return;
  const double samples = trained_samples(state);
  progress_->saved(state.iteration, flops_of(samples),
                   samples * static_cast<double>(config_.model.seq_length));
}

}  // namespace pentatron::training
