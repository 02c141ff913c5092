// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "pentatron/config/config.h"
#include "pentatron/nn/step_scalars.h"

// Megatron's lines on screen, character by character.
namespace pentatron::training {

// What a line begins with.
struct IterationTitle {
  std::string timestamp;  // "YYYY-mm-dd HH:MM:SS.ffffff"
  std::int64_t iteration = 0;
  std::int64_t train_iters = 0;
};
// The title and every number that has a place in the line (scalar_forms.h), in its order. Numbers
// that are not finite are left out, as those of a step that was left out are.
[[nodiscard]] std::string format_iteration_line(const IterationTitle& title,
                                                const nn::StepScalars& scalars);

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

// Model FLOPs of one global batch, forward and backward, Megatron's formula (dense models); the
// products that a window of attention leaves out count all the same.
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
  bool attention_output_gate = false;  // one more query projection
};
[[nodiscard]] double model_flops(const FlopsInput& input);
// Of whole samples of seq_length tokens; `model` is resolved.
[[nodiscard]] double model_flops(const config::ModelConfig& model, double num_samples);

}  // namespace pentatron::training
