// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/reporter.h"

#include <algorithm>
#include <cmath>

#include "pentatron/training/log_format.h"

namespace pentatron::training {

Reporter::Reporter(const config::RunConfig& config, std::int64_t rank, std::int64_t world_size)
    : config_(config), world_size_(world_size), speaks_(rank == world_size - 1) {}

void Reporter::open(std::int64_t resume_iteration) {
  if (!speaks_) return;
  metrics_ = std::make_unique<MetricsFile>(config_.training.metrics_file, resume_iteration);
}

void Reporter::begin_training() { window_ = Window{}; }

void Reporter::step(const TrainState& state, const StepReport& report) {
  ++window_.all;
  if (report.skipped) {
    ++window_.skipped;
  } else {
    ++window_.good;
    window_.loss_sum += report.loss;
  }
  if (!report.finite) ++window_.nan;
  const auto tokens = static_cast<double>(report.global_batch_size * config_.model.seq_length);
  window_.tokens += tokens;
  last_batch_size_ = report.global_batch_size;
  last_num_zeros_ = report.num_zeros;
  last_grad_norm_ = report.grad_norm;
  last_loss_scale_ = report.loss_scale;
  if (!metrics_) return;
  metrics_->write("train", state.iteration,
                  {{"consumed_samples", static_cast<double>(state.consumed_train_samples)},
                   {"lm_loss", report.loss},
                   {"grad_norm", report.grad_norm},
                   {"learning_rate", report.learning_rate},
                   {"weight_decay", report.weight_decay},
                   {"valid_tokens", report.num_valid_tokens},
                   {"global_batch_size", static_cast<double>(report.global_batch_size)},
                   {"loss_scale", report.loss_scale},
                   {"skipped", report.skipped ? 1.0 : 0.0},
                   {"seconds", report.seconds},
                   {"tokens_per_second", tokens / std::max(1e-9, report.seconds)}});
}

double Reporter::flops_of_step() const {
  const config::ModelConfig& m = config_.model;
  const double tokens =
      window_.tokens / static_cast<double>(std::max<std::int64_t>(1, window_.all));
  return model_flops({.tokens = tokens,
                      .sum_squared_lengths = tokens * static_cast<double>(m.seq_length),
                      .num_layers = m.num_layers,
                      .hidden = m.hidden_size,
                      .ffn_hidden = m.ffn_hidden_size,
                      .query_projection = m.num_attention_heads * m.kv_channels,
                      .kv_projection = m.num_query_groups * m.kv_channels,
                      .padded_vocab = m.padded_vocab_size,
                      .swiglu = m.swiglu});
}

void Reporter::log_line(const TrainState& state, double next_learning_rate,
                        std::optional<double> params_norm, bool reset) {
  const config::TrainingConfig& training = config_.training;
  const double seconds =
      window_.seconds() / static_cast<double>(std::max<std::int64_t>(1, window_.all));
  IterationLine line;
  line.timestamp = current_timestamp();
  line.iteration = state.iteration;
  line.train_iters = training.train_iters;
  line.consumed_samples = state.consumed_train_samples;
  line.skipped_samples = state.skipped_train_samples;
  line.milliseconds_per_iteration = seconds * 1e3;
  if (training.log_throughput) {
    line.tflops_per_gpu = flops_of_step() / (seconds * 1e12 * static_cast<double>(world_size_));
  }
  line.learning_rate = next_learning_rate;
  line.global_batch_size = last_batch_size_;
  if (window_.good > 0) line.lm_loss = window_.loss_sum / static_cast<double>(window_.good);
  line.loss_scale = last_loss_scale_;
  line.grad_norm = last_grad_norm_;
  line.num_zeros = last_num_zeros_;
  line.params_norm = params_norm;
  line.skipped_iterations = window_.skipped;
  line.nan_iterations = window_.nan;
  if (speaks_) {
    log::print_line(format_iteration_line(line));
    const std::int64_t left = training.train_iters - state.iteration;
    log::info("{:.0f} tokens/s, {} of {} iterations, about {} left",
              window_.tokens / std::max(1e-9, window_.seconds()), state.iteration,
              training.train_iters, format_duration(seconds * static_cast<double>(left)));
  }
  if (reset) window_ = Window{};
}

void Reporter::evaluation(const TrainState& state, const std::string& where, const char* kind,
                          const std::string& set_name, double loss, double num_valid_tokens,
                          bool final_one) {
  if (!speaks_) return;
  log::print_line(format_evaluation_block(where, loss, set_name));
  MetricsFile::Values values{{"lm_loss", loss}, {"valid_tokens", num_valid_tokens}};
  if (final_one) values.emplace_back("final", 1.0);
  metrics_->write(set_name.empty() ? kind : fmt::format("{}-{}", kind, set_name), state.iteration,
                  values);
}

}  // namespace pentatron::training
