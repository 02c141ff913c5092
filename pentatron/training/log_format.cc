// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/log_format.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <cmath>

namespace pentatron::training {

std::string format_iteration_line(const IterationLine& line) {
  std::string text =
      fmt::format(" [{}] iteration {:8d}/{:8d} | consumed samples: {:12d} |", line.timestamp,
                  line.iteration, line.train_iters, line.consumed_samples);
  if (line.skipped_samples > 0) {
    text += fmt::format(" skipped samples: {:12d} |", line.skipped_samples);
  }
  text +=
      fmt::format(" elapsed time per iteration (ms): {:.1f} |", line.milliseconds_per_iteration);
  if (line.tflops_per_gpu) {
    text += fmt::format(" throughput per GPU (TFLOP/s/GPU): {:.1f} |", *line.tflops_per_gpu);
  }
  if (line.joules_per_gpu) {
    text += fmt::format(" energy per GPU (J/iter/GPU): {:.1f} |", *line.joules_per_gpu);
  }
  if (line.watts_per_gpu) {
    text += fmt::format(" power per GPU (W/GPU): {:.1f} |", *line.watts_per_gpu);
  }
  text += fmt::format(" learning rate: {:.6E} | global batch size: {:5d} |", line.learning_rate,
                      line.global_batch_size);
  if (line.lm_loss) text += fmt::format(" lm loss: {:.6E} |", *line.lm_loss);
  text += fmt::format(" loss scale: {:.1f} |", line.loss_scale);
  if (line.grad_norm) text += fmt::format(" grad norm: {:.3f} |", *line.grad_norm);
  if (line.num_zeros) text += fmt::format(" num zeros: {:.0f} |", *line.num_zeros);
  if (line.params_norm) text += fmt::format(" params norm: {:.3f} |", *line.params_norm);
  if (line.max_attention_logit) {
    text += fmt::format(" max attention logit: {:.3f} |", *line.max_attention_logit);
  }
  text += fmt::format(" number of skipped iterations: {:3d} | number of nan iterations: {:3d} |",
                      line.skipped_iterations, line.nan_iterations);
  return text;
}

double perplexity(double loss) {
  constexpr double kLargestExponent = 20.0;
  return std::isnan(loss) ? loss : std::exp(std::min(kLargestExponent, loss));
}

std::string format_evaluation_block(std::string_view where, double lm_loss,
                                    std::string_view set_name) {
  const std::string line =
      fmt::format(" validation{}{} loss at {} | lm loss value: {:.6E} | lm loss PPL: {:.6E} | ",
                  set_name.empty() ? "" : "-", set_name, where, lm_loss, perplexity(lm_loss));
  const std::string dashes(line.size() + 1, '-');
  return fmt::format("{}\n{}\n{}", dashes, line, dashes);
}

std::string current_timestamp() {
  const auto now = std::chrono::system_clock::now();
  const auto micros =
      std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count() %
      1'000'000;
  return fmt::format("{:%Y-%m-%d %H:%M:%S}.{:06d}",
                     fmt::localtime(std::chrono::system_clock::to_time_t(now)), micros);
}

std::string current_datetime() {
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::localtime(std::time(nullptr)));
}

std::string format_duration(double seconds) {
  constexpr std::int64_t kMinute = 60;
  constexpr std::int64_t kHour = 3600;
  const auto whole = static_cast<std::int64_t>(std::llround(std::max(0.0, seconds)));
  if (whole >= kHour) return fmt::format("{}h {:02d}m", whole / kHour, whole % kHour / kMinute);
  if (whole >= kMinute) return fmt::format("{}m {:02d}s", whole / kMinute, whole % kMinute);
  return fmt::format("{}s", whole);
}

double model_flops(const FlopsInput& in) {
  // 6 = forward plus two backward products, 2 per multiply-add; the causal half cancels attention's
  // two products.
  constexpr double kPerWeight = 6.0;
  const auto h = static_cast<double>(in.hidden);
  const auto q = static_cast<double>(in.query_projection);
  const auto kv = static_cast<double>(in.kv_projection);
  const auto layers = static_cast<double>(in.num_layers);
  const double ffn_factor = in.swiglu ? 3.0 : 2.0;
  const double mlp = h * ffn_factor * static_cast<double>(in.ffn_hidden) * layers;
  const double attention = layers * (h * (q + 2.0 * kv) + q * h);
  const double head = h * static_cast<double>(in.padded_vocab);
  return kPerWeight * in.tokens * (mlp + attention + head) +
         kPerWeight * in.sum_squared_lengths * layers * q;
}

}  // namespace pentatron::training
