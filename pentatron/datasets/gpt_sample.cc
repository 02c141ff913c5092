// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/gpt_sample.h"

#include <utility>

#include "pentatron/base/error.h"

namespace pentatron::datasets {

Sample make_gpt_sample(const std::vector<std::int64_t>& text, std::int64_t eod,
                       const GptMaskOptions& options) {
  PENTATRON_CHECK(text.size() >= 2, kInternal, "a sample needs 2 tokens or more, got {}",
                  text.size());
  const std::size_t size = text.size() - 1;
  std::vector<float> loss_mask(size, 1.0F);
  SampleSequence sequence;
  sequence.positions.resize(size);
  std::int64_t position = 0;
  std::int32_t run = 0;
  for (std::size_t i = 0; i < size; ++i) {
    sequence.positions[i] = position++;
    ++run;
    if (text[i] != eod) continue;
    if (options.eod_mask_loss) loss_mask[i] = 0.0F;
    if (options.reset_position_ids) position = 0;
    if (options.reset_attention_mask) {
      sequence.runs.push_back(run);
      run = 0;
    }
  }
  if (run > 0) sequence.runs.push_back(run);
  std::vector<std::int64_t> tokens(text.begin(), text.end() - 1);
  std::vector<std::int64_t> labels(text.begin() + 1, text.end());
  for (std::size_t i = 0; i < size && options.pad >= 0; ++i) {
    if (labels[i] == options.pad) loss_mask[i] = 0.0F;
    if (labels[i] == options.pad) labels[i] = 0;
    if (tokens[i] == options.pad) tokens[i] = 0;
  }
  Sample sample;
  sample.sequences.emplace(Sample::kText, std::move(sequence));
  sample.fields.emplace("tokens", std::move(tokens));
  sample.fields.emplace("labels", std::move(labels));
  sample.fields.emplace("loss_mask", std::move(loss_mask));
  return sample;
}

}  // namespace pentatron::datasets
