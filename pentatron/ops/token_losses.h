// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "pentatron/ops/cross_entropy.h"
#include "pentatron/ops/projection.h"
#include "pentatron/tensor/precision.h"

namespace pentatron::ops {

// Combines rows of numbers over the ranks that hold a vocabulary in slices; in place, the result on
// every rank. Ranks call it in the same order.
class RowReducer {
 public:
  virtual ~RowReducer() = default;
  virtual void max(Tensor t) = 0;
  virtual void sum(Tensor t) = 0;
};

struct TokenLossOptions {
  DType logits = DType::Float;      // dtype of the logits
  DType statistics = DType::Float;  // of maximum, sum of exponentials and losses
  // The slice of the vocabulary that the projection gives: its first `valid_columns` outputs are
  // the ids from column_begin on, the others are padding and never enter.
  std::int64_t column_begin = 0;
  std::int64_t valid_columns = 0;
  RowReducer* vocabulary_ranks = nullptr;  // null: the whole vocabulary is here
  double logit_softcap = 0.0;              // cap_logits_() before the softmax; 0: none
  // Share of the target that all other ids of the `vocabulary` get, equally (C. Szegedy et al.,
  // "Rethinking the Inception Architecture", 2016): with s = label_smoothing V / (V - 1) the loss
  // is (1 - s) nll - s mean(log softmax), as Megatron-LM's vocab_parallel_cross_entropy has it.
  double label_smoothing = 0.0;
  std::int64_t vocabulary = 0;  // true ids on all ranks; read with smoothing alone

  // Above 0 and below the rows of x: logits are made of so many rows at a time, dropped, and made
  // again in backward, so that they never lie whole in memory. Not with products in fp8, whose
  // scales would be those of a piece.
  std::int64_t rows_at_once = 0;

  // s / V and s above.
  [[nodiscard]] double smoothed_share() const {
    return label_smoothing / static_cast<double>(vocabulary - 1);
  }
  [[nodiscard]] double smoothing() const {
    return smoothed_share() * static_cast<double>(vocabulary);
  }
  // Of the target smoothing takes s, and gives s / V to each id.
  [[nodiscard]] LossTarget target() const {
    if (label_smoothing == 0.0) return {};
    return {.label = 1.0 - smoothing(), .every = smoothed_share()};
  }
};

// In place: logits become cap tanh(logits / cap); a cap of 0 leaves them (Gemma 2, arXiv
// 2408.00118).
void cap_logits_(Tensor logits, double cap);

// The negative log-likelihood (smoothed, where that is asked for) of each token's label under
// softmax(projection(x)): [t], in the statistics dtype, differentiable in x and in the weights.
// labels int64 [t], global ids. The softmax's gradient takes the logits' place in memory. In pieces
// losses have the same bits but for products whose sums depend on their number of rows. Shapes that
// do not fit: kInternal.
[[nodiscard]] Tensor token_losses(const Tensor& x_th, std::unique_ptr<Projection> projection,
                                  const Tensor& labels_t, const TokenLossOptions& options);

// weighted_sum(token_losses(...), weights_t, out), where the gradient that will come for the sum is
// known already: `seed`, a scalar of dtype `out`. The softmax's gradient then takes the logits'
// place in the pass that makes the loss. Not for slices of the vocabulary, caps, smoothing, or
// logits in pieces (takes_seed()). Another gradient than the seed's memory: kInternal.
[[nodiscard]] Tensor seeded_token_loss(const Tensor& x_th, std::unique_ptr<Projection> projection,
                                       const Tensor& labels_t, const Tensor& weights_t,
                                       const TokenLossOptions& options, const Tensor& seed);
[[nodiscard]] bool takes_seed(const TokenLossOptions& options, std::int64_t rows);

// Sum of values_t times weights_t (constants in the same dtype) in dtype `out`: a scalar. What
// makes a loss of the losses of tokens.
[[nodiscard]] Tensor weighted_sum(const Tensor& values_t, const Tensor& weights_t, DType out);

}  // namespace pentatron::ops
