// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/reporter.h"

#include <algorithm>
#include <cmath>

#include "pentatron/base/format.h"
#include "pentatron/config/print.h"
#include "pentatron/tensor/device.h"
#include "pentatron/training/timer_report.h"

namespace pentatron::training {
namespace {

constexpr double kShortest = 1e-9;  // seconds; keeps rates finite

}  // namespace

Reporter::Reporter(const config::RunConfig& config, std::int64_t rank, std::int64_t world_size,
                   const tensor::MemoryMeter* memory)
    : config_(config),
      rank_(rank),
      world_size_(world_size),
      speaks_(rank == world_size - 1),
      meter_(memory),
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
  if (!speaks_) return;
  const config::LoggingConfig& logging = config_.logging;
  metrics_ = std::make_unique<MetricsFile>(config_.training.metrics_file, state.iteration);
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

void Reporter::restart_window() {
  window_ = Window{};
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
  restart_window();
  first_iteration_ = state.iteration + 1;
}

bool Reporter::line_due(std::int64_t iteration) const {
  return iteration % config_.training.log_interval == 0 || iteration == first_iteration_;
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
  const config::ModelConfig& m = config_.model;
  const auto length = static_cast<double>(m.seq_length);
  return model_flops({.tokens = num_samples * length,
                      .sum_squared_lengths = num_samples * length * length,
                      .num_layers = m.num_layers,
                      .hidden = m.hidden_size,
                      .ffn_hidden = m.ffn_hidden_size,
                      .query_projection = m.num_attention_heads * m.kv_channels,
                      .kv_projection = m.num_query_groups * m.kv_channels,
                      .padded_vocab = m.padded_vocab_size,
                      .swiglu = m.swiglu});
}

double Reporter::trained_samples(const TrainState& state) const {
  return static_cast<double>(state.consumed_train_samples - state.skipped_train_samples);
}

double Reporter::tflops_per_rank(double num_samples, double seconds) const {
  return flops_of(num_samples) /
         (std::max(kShortest, seconds) * 1e12 * static_cast<double>(world_size_));
}

void Reporter::step(const TrainState& state, const StepReport& report) {
  ++window_.all;
  ++steps_since_timers_;
  if (report.skipped) {
    ++window_.skipped;
  } else {
    ++window_.good;
    window_.loss_sum += report.loss;
  }
  if (!report.finite) ++window_.nan;
  window_.samples += static_cast<double>(report.global_batch_size);
  last_ = report;
  last_energy_ = line_due(state.iteration) ? energy() : std::nullopt;
  write_metrics(state, report);
  if (events_due(state.iteration)) write_events(state, report);
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
  if (iteration % config_.training.log_interval == 0) restart_window();
}

void Reporter::write_metrics(const TrainState& state, const StepReport& report) {
  if (!metrics_ || config_.training.metrics_file.empty()) return;
  const auto samples = static_cast<double>(report.global_batch_size);
  const double tokens = samples * static_cast<double>(config_.model.seq_length);
  const MemoryStatistics now = memory();
  MetricsFile::Values values{
      {"consumed_samples", static_cast<double>(state.consumed_train_samples)},
      {"lm_loss", report.loss},
      {"grad_norm", report.grad_norm},
      {"learning_rate", report.learning_rate},
      {"weight_decay", report.weight_decay},
      {"valid_tokens", report.num_valid_tokens},
      {"global_batch_size", samples},
      {"loss_scale", report.loss_scale},
      {"skipped", report.skipped ? 1.0 : 0.0},
      {"seconds", report.seconds},
      {"tokens_per_second", tokens / std::max(kShortest, report.seconds)},
      {"tflops_per_gpu", tflops_per_rank(samples, report.seconds)},
      {"memory_allocated", static_cast<double>(now.allocated)},
      {"memory_reserved", static_cast<double>(now.reserved)}};
  if (report.num_zeros) values.emplace_back("num_zeros", *report.num_zeros);
  if (report.params_norm) values.emplace_back("params_norm", *report.params_norm);
  if (last_energy_) {
    values.emplace_back("joules_per_gpu", last_energy_->joules_per_iteration);
    values.emplace_back("watts_per_gpu", last_energy_->watts);
  }
  if (report.max_attention_logit) {
    values.emplace_back("max_attention_logit", *report.max_attention_logit);
  }
  metrics_->write("train", state.iteration, values);
}

void Reporter::write_events(const TrainState& state, const StepReport& report) {
  if (!events_) return;
  const config::LoggingConfig& logging = config_.logging;
  const auto both = [&](const std::string& tag, double value) {
    events_->scalar(tag, value, state.iteration);
    events_->scalar(tag + " vs samples", value, state.consumed_train_samples);
  };
  both("learning-rate", report.next_learning_rate);
  both("batch-size", static_cast<double>(report.global_batch_size));
  if (state.skipped_train_samples > 0) {
    both("skipped-train-samples", static_cast<double>(state.skipped_train_samples));
  }
  if (!report.skipped) both("lm loss", report.loss);
  if (logging.log_loss_scale_to_tensorboard) both("loss-scale", report.loss_scale);
  if (logging.log_world_size_to_tensorboard) both("world-size", static_cast<double>(world_size_));
  both("grad-norm", report.grad_norm);
  if (report.num_zeros) both("num-zeros", *report.num_zeros);
  if (report.params_norm) both("params-norm", *report.params_norm);
  if (report.max_attention_logit) {
    events_->scalar("max_attention_logit", *report.max_attention_logit, state.iteration);
  }
  if (logging.log_memory_to_tensorboard) {
    const MemoryStatistics now = memory();
    const auto number = [&](const char* tag, std::int64_t value) {
      events_->scalar(tag, static_cast<double>(value), state.iteration);
    };
    number("mem-reserved-bytes", now.reserved);
    number("mem-allocated-bytes", now.allocated);
    number("mem-max-allocated-bytes", now.max_allocated);
    number("mem-allocated-count", now.num_blocks);
  }
}

void Reporter::write_line(const TrainState& state) {
  const config::TrainingConfig& training = config_.training;
  const auto count = static_cast<double>(std::max<std::int64_t>(1, window_.all));
  const double seconds = window_.seconds() / count;
  const double tflops = tflops_per_rank(window_.samples / count, seconds);
  IterationLine line;
  line.timestamp = current_timestamp();
  line.iteration = state.iteration;
  line.train_iters = training.train_iters;
  line.consumed_samples = state.consumed_train_samples;
  line.skipped_samples = state.skipped_train_samples;
  line.milliseconds_per_iteration = seconds * 1e3;
  if (training.log_throughput) line.tflops_per_gpu = tflops;
  const std::optional<Energy> energy = std::exchange(last_energy_, std::nullopt);
  if (energy) {
    line.joules_per_gpu = energy->joules_per_iteration;
    line.watts_per_gpu = energy->watts;
  }
  line.learning_rate = last_.next_learning_rate;
  line.global_batch_size = last_.global_batch_size;
  if (window_.good > 0) line.lm_loss = window_.loss_sum / static_cast<double>(window_.good);
  line.loss_scale = last_.loss_scale;
  line.grad_norm = last_.grad_norm;
  line.num_zeros = last_.num_zeros;
  line.params_norm = last_.params_norm;
  line.max_attention_logit = last_.max_attention_logit;
  line.skipped_iterations = window_.skipped;
  line.nan_iterations = window_.nan;
  if (!speaks_) return;
  log::print_line(format_iteration_line(line));
  const std::int64_t left = training.train_iters - state.iteration;
  if (progress_due(state.iteration)) {
    log::info("{:.0f} tokens/s, {} of {} iterations, about {} left",
              window_.samples * static_cast<double>(config_.model.seq_length) /
                  std::max(kShortest, window_.seconds()),
              state.iteration, training.train_iters,
              format_duration(seconds * static_cast<double>(left)));
  }
  if (!events_) return;
  if (energy) {
    events_->scalar("iter-energy/gpu", energy->joules_per_iteration, state.iteration);
    events_->scalar("power/gpu", energy->watts, state.iteration);
  }
  if (!config_.logging.log_timers_to_tensorboard) return;
  events_->scalar("iteration-time", seconds, state.iteration);
  if (training.log_throughput) events_->scalar("throughput", tflops, state.iteration);
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
  log::print_line(format_memory_report(rank_, iteration, memory()));
}

void Reporter::report_step_timers(std::int64_t iteration) {
  const auto count =
      static_cast<double>(std::max<std::int64_t>(1, std::exchange(steps_since_timers_, 0)));
  if (context_ == nullptr || !timers_.on(1)) return;
  const std::vector<TimerReading> readings = read_timers(timers_, context_->world(), step_timers());
  if (!speaks_ || readings.empty()) return;
  log::print_line(format_timers(readings, config_.logging.timing_log_option, count));
  if (!events_ || !config_.logging.log_timers_to_tensorboard) return;
  for (const TimerReading& reading : readings) {
    events_->scalar(reading.name + "-time", reading.most() / count, iteration);
  }
}

void Reporter::show_timers(std::initializer_list<std::string_view> names) {
  const std::vector<TimerReading> readings =
      read_timers(timers_, context_->world(), std::span(names.begin(), names.size()));
  if (speaks_ && !readings.empty()) {
    log::print_line(format_timers(readings, config_.logging.timing_log_option, 1));
  }
}

void Reporter::evaluation(const TrainState& state, const std::string& where, const char* kind,
                          const std::string& set_name, double loss, double num_valid_tokens,
                          bool final_one) {
  if (!speaks_) return;
  log::print_line(format_evaluation_block(where, loss, set_name));
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
  if (!speaks_) return;
  log::print_line(fmt::format(" sample at iteration {} | {} | {}", state.iteration,
                              python_repr_text(sample.prompt), python_repr_text(sample.text)));
  MetricsFile::Values values;
  if (final_one) values.emplace_back("final", 1.0);
  metrics_->write("sample", state.iteration, values,
                  {{"prompt", sample.prompt}, {"text", sample.text}});
  if (events_) {
    events_->text(fmt::format("sample after {}", quoted_for_message(sample.prompt)), sample.text,
                  state.iteration);
  }
}

void Reporter::saved(const TrainState& state) {
  if (!progress_) return;
  const double samples = trained_samples(state);
  progress_->saved(state.iteration, flops_of(samples),
                   samples * static_cast<double>(config_.model.seq_length));
}

}  // namespace pentatron::training
