// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace pentatron::datasets {

// One training sample of S tokens; all vectors are the sample's own.
struct GptSample {
  std::vector<std::int64_t> tokens;        // [S]
  std::vector<std::int64_t> labels;        // [S], the next token of each
  std::vector<std::uint8_t> loss_mask;     // [S], 1: counts in the loss
  std::vector<std::int64_t> position_ids;  // [S]
  // Lengths of the runs of tokens that may attend to each other; they sum to S.
  std::vector<std::int32_t> attention_lengths;
};

// S + 1 tokens as they stand in the corpus, and where sequences of the corpus begin in them (places
// 0 to S; 0 only when the sample begins with one). These boundaries come from the index, not from
// token values.
struct GptText {
  std::vector<std::int64_t> tokens;
  std::vector<std::int64_t> sequence_starts;
};

struct GptMaskOptions {
  bool reset_position_ids = false;
  bool reset_attention_mask = false;
  bool eod_mask_loss = false;
};

// Anything that yields samples by place in training order; const methods are safe from any number
// of threads.
class SampleSource {
 public:
  virtual ~SampleSource() = default;
  [[nodiscard]] virtual std::int64_t num_samples() const = 0;
  [[nodiscard]] virtual std::int64_t sequence_length() const = 0;
  [[nodiscard]] virtual GptSample sample(std::int64_t i) const = 0;
};

// Labels, masks and positions of `text` (S + 1 tokens) as Megatron defines them. An EOD token ends
// a document: with reset_position_ids the token after it has position 0, with reset_attention_mask
// it starts a new attention run, and with eod_mask_loss the place of the EOD itself counts not in
// the loss. Fewer than 2 tokens: ErrorKind::kInternal.
[[nodiscard]] GptSample make_gpt_sample(const std::vector<std::int64_t>& text, std::int64_t eod,
                                        const GptMaskOptions& options);

}  // namespace pentatron::datasets
