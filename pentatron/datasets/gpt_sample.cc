// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/gpt_sample.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/datasets/text_sample.h"

namespace pentatron::datasets {

namespace {

// Positions and runs of `size` tokens whose documents are told by their EOD tokens.
SampleSequence sequence_by_eod(const std::vector<std::int64_t>& text, std::size_t size,
                               std::int64_t eod, const GptMaskOptions& options) {
  SampleSequence sequence;
  sequence.positions.resize(size);
  std::int64_t position = 0;
  std::int32_t run = 0;
  for (std::size_t i = 0; i < size; ++i) {
    sequence.positions[i] = position++;
    ++run;
    if (text[i] != eod) continue;
    if (options.reset_position_ids) position = 0;
    if (options.reset_attention_mask) sequence.runs.push_back(std::exchange(run, 0));
  }
  if (run > 0) sequence.runs.push_back(run);
  return sequence;
}

// The same by the index. A document that begins with the last label is no part of the sample.
SampleSequence sequence_by_starts(const std::vector<std::int64_t>& starts, std::size_t size) {
  SampleSequence sequence;
  sequence.positions.resize(size);
  const auto end_run = [&](std::size_t begin, std::size_t end) {
    if (begin == end) return;
    sequence.runs.push_back(static_cast<std::int32_t>(end - begin));
    std::iota(sequence.positions.begin() + static_cast<std::ptrdiff_t>(begin),
              sequence.positions.begin() + static_cast<std::ptrdiff_t>(end), std::int64_t{0});
  };
  std::size_t begin = 0;
  for (const std::int64_t start : starts) {
    const auto next = std::min(static_cast<std::size_t>(start), size);
    end_run(std::exchange(begin, next), next);
  }
  end_run(begin, size);
  return sequence;
}

}  // namespace

Sample make_gpt_sample(const GptText& of, std::int64_t eod, const GptMaskOptions& options) {
  const std::vector<std::int64_t>& text = of.tokens;
  PENTATRON_CHECK(text.size() >= 2, kInternal, "a sample needs 2 tokens or more, got {}",
                  text.size());
  const std::size_t size = text.size() - 1;
  SampleSequence sequence = options.inter_document ? sequence_by_starts(of.sequence_starts, size)
                                                   : sequence_by_eod(text, size, eod, options);
  std::vector<std::int64_t> tokens(text.begin(), text.end() - 1);
  std::vector<std::int64_t> labels(text.begin() + 1, text.end());
  std::vector<float> loss_mask(size, 1.0F);
  for (std::size_t i = 0; i < size && options.eod_mask_loss; ++i) {
    if (tokens[i] == eod) loss_mask[i] = 0.0F;
  }
  const auto is_padding = [&](std::int64_t token) {
    return token == GptText::kNoToken || (options.pad >= 0 && token == options.pad);
  };
  for (std::size_t i = 0; i < size; ++i) {
    if (is_padding(tokens[i])) tokens[i] = 0;
    if (!is_padding(labels[i])) continue;
    labels[i] = 0;
    loss_mask[i] = 0.0F;
  }
  return text_sample(std::move(sequence), std::move(tokens), std::move(labels),
                     std::move(loss_mask));
}

Sample make_gpt_sample(std::vector<std::int64_t> tokens, std::int64_t eod,
                       const GptMaskOptions& options) {
  return make_gpt_sample(GptText{.tokens = std::move(tokens), .sequence_starts = {}}, eod, options);
}

}  // namespace pentatron::datasets
