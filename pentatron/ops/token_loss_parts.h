// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "pentatron/ops/token_losses.h"

// What token_losses() with all logits at once and in pieces share. Shapes: t tokens, h hidden, v
// local vocabulary rows (padding included).
namespace pentatron::ops::token_loss_parts {

// Over all ranks of the vocabulary.
struct Statistics {
  Tensor log_sum_exp_t;
  Tensor target_logit_t;
  Tensor logit_sum_t;  // of the true columns; with smoothing
};
[[nodiscard]] Statistics statistics_of(const Tensor& logits_tv, const Tensor& labels_t,
                                       const TokenLossOptions& options);

[[nodiscard]] Tensor losses_of(const Statistics& statistics, const TokenLossOptions& options);

// From the logits to their gradient, in place. Of capped ones c = cap tanh(l / cap) it is that of c
// times 1 - (c / cap)^2, a few rows at a time, since both must be in memory.
void logits_gradient_(const Tensor& logits_tv, const Tensor& labels_t, const Tensor& log_sum_exp_t,
                      const Tensor& coefficient_t, const TokenLossOptions& options);

// token_losses() with options.rows_at_once rows of x at a time.
[[nodiscard]] Tensor in_pieces(const Tensor& x_th, std::unique_ptr<Projection> projection,
                               const Tensor& labels_t, const TokenLossOptions& options);

}  // namespace pentatron::ops::token_loss_parts
