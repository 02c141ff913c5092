// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "pentatron/datasets/sample.h"

namespace pentatron::datasets {

// S + 1 tokens as they stand in the corpus, and where sequences of the corpus begin in them (places
// 0 to S; 0 only when the sample begins with one). These boundaries come from the index, not from
// token values. A short sample is filled up with kNoToken.
struct GptText {
  static constexpr std::int64_t kNoToken = -1;

  std::vector<std::int64_t> tokens;
  std::vector<std::int64_t> sequence_starts;
};

struct GptMaskOptions {
  std::int64_t pad = -1;  // this token is padding; below 0: none is
  bool reset_position_ids = false;
  bool reset_attention_mask = false;
  bool eod_mask_loss = false;
  bool inter_document = false;  // documents by the index: runs of their own, positions from 0
};

// The sample of `text` (S + 1 tokens), with labels, masks and positions as Megatron defines them.
// An EOD token ends a document: with reset_position_ids the token after it has position 0, with
// reset_attention_mask it starts a new attention run, and with eod_mask_loss the place of the EOD
// itself counts not in the loss. A padding token, and what fills a short sample up, is never
// predicted, and both as input and as label it is read as 0, so that a model without a row for it
// can be trained. With inter_document a new
// run begins, and position 0 stands, where a sequence of the corpus begins, and nowhere else: EOD
// tokens then decide about the loss alone. Fewer than 2 tokens: ErrorKind::kInternal.
[[nodiscard]] Sample make_gpt_sample(const GptText& text, std::int64_t eod,
                                     const GptMaskOptions& options);
// The same of tokens alone, in which no sequence begins.
[[nodiscard]] Sample make_gpt_sample(std::vector<std::int64_t> tokens, std::int64_t eod,
                                     const GptMaskOptions& options);

}  // namespace pentatron::datasets
