// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

// Megatron's lines on screen, character by character.
namespace pentatron::training {

struct IterationLine {
  std::string timestamp;  // "YYYY-mm-dd HH:MM:SS.ffffff"
  std::int64_t iteration = 0;
  std::int64_t train_iters = 0;
  std::int64_t consumed_samples = 0;
  std::int64_t skipped_samples = 0;  // shown when there are any
  double milliseconds_per_iteration = 0;
  std::optional<double> tflops_per_gpu = std::nullopt;
  std::optional<double> joules_per_gpu = std::nullopt;  // of an iteration
  std::optional<double> watts_per_gpu = std::nullopt;
  double learning_rate = 0;  // of the next update
  std::int64_t global_batch_size = 0;
  // Mean over the iterations since the last line; left out when none was good.
  std::optional<double> lm_loss = std::nullopt;
  double loss_scale = 1.0;
  std::optional<double> grad_norm = std::nullopt;
  std::optional<double> num_zeros = std::nullopt;  // among the gradients
  std::optional<double> params_norm = std::nullopt;
  std::optional<double> max_attention_logit = std::nullopt;
  std::int64_t skipped_iterations = 0;
  std::int64_t nan_iterations = 0;
};
[[nodiscard]] std::string format_iteration_line(const IterationLine& line);

// exp(min(20, loss)); NaN of NaN.
[[nodiscard]] double perplexity(double loss);

// " validation loss at iteration N | lm loss value: ... | lm loss PPL: ... | " between two lines of
// dashes as long as it plus one. `where`: "iteration 100" or "iteration 100 on validation set". PPL
// = exp(min(20, loss)). With several sets " validation-NAME loss at ...".
[[nodiscard]] std::string format_evaluation_block(std::string_view where, double lm_loss,
                                                  std::string_view set_name = {});

[[nodiscard]] std::string current_timestamp();  // with microseconds
[[nodiscard]] std::string current_datetime();   // without
// "1h 02m", "3m 20s", "12s"
[[nodiscard]] std::string format_duration(double seconds);

// Model FLOPs of one global batch, forward and backward, Megatron's formula (dense models).
struct FlopsInput {
  double tokens = 0;               // of the batch
  double sum_squared_lengths = 0;  // of its sequences, in tokens
  std::int64_t num_layers = 0;
  std::int64_t hidden = 0;
  std::int64_t ffn_hidden = 0;
  std::int64_t query_projection = 0;  // heads * kv_channels
  std::int64_t kv_projection = 0;     // groups * kv_channels
  std::int64_t padded_vocab = 0;
  bool swiglu = false;
};
[[nodiscard]] double model_flops(const FlopsInput& input);

}  // namespace pentatron::training
