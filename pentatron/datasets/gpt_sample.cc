// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/gpt_sample.h"

#include "pentatron/base/error.h"

namespace pentatron::datasets {

GptSample make_gpt_sample(const std::vector<std::int64_t>& text, std::int64_t eod,
                          const GptMaskOptions& options) {
  PENTATRON_CHECK(text.size() >= 2, kInternal, "a sample needs 2 tokens or more, got {}",
                  text.size());
  const std::size_t size = text.size() - 1;
  GptSample sample;
  sample.tokens.assign(text.begin(), text.end() - 1);
  sample.labels.assign(text.begin() + 1, text.end());
  sample.loss_mask.assign(size, 1);
  sample.position_ids.resize(size);
  std::int64_t position = 0;
  std::int32_t run = 0;
  for (std::size_t i = 0; i < size; ++i) {
    sample.position_ids[i] = position++;
    ++run;
    if (sample.tokens[i] != eod) continue;
    if (options.eod_mask_loss) sample.loss_mask[i] = 0;
    if (options.reset_position_ids) position = 0;
    if (options.reset_attention_mask) {
      sample.attention_lengths.push_back(run);
      run = 0;
    }
  }
  if (run > 0) sample.attention_lengths.push_back(run);
  return sample;
}

}  // namespace pentatron::datasets
