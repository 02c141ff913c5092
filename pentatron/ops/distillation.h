// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "pentatron/ops/cross_entropy.h"
#include "pentatron/ops/projection.h"
#include "pentatron/ops/token_losses.h"

// What a student learns from a teacher: Kullback-Leibler divergence of their next-token
// distributions (G. Hinton et al., "Distilling the Knowledge in a Neural Network", 2015), and
// distances of hidden states. Shapes: t tokens, h hidden, v local vocabulary rows (padding
// included).
namespace pentatron::ops {

// Logits of both models for the same tokens, contiguous, of one shape and dtype; columns >=
// valid_columns are padding and never enter. Distributions are softmax(logits / temperature).
struct LogitPair {
  Tensor student_tv;
  Tensor teacher_tv;
  std::int64_t valid_columns = 0;
  double temperature = 1.0;
};
// Log-sum-exps of each row of logits / temperature, over the whole vocabulary.
struct LogitNormalisers {
  Tensor student_t;
  Tensor teacher_t;
};
// What the student's plain cross entropy adds to the logits' gradient, as in softmax_gradient_().
struct CrossEntropyGradient {
  Tensor labels_t;
  Tensor log_sum_exp_t;  // of the student's logits as they are
  Tensor coefficient_t;
  std::int64_t column_begin = 0;
  LossTarget target = {};
};

// The local pieces of a vocabulary-parallel divergence, as those of cross_entropy.h.
// 1. Of each row of logits / temperature: largest and sum of exponentials below it, in the
// statistics dtype (the other members stay undefined).
[[nodiscard]] SoftmaxPieces tempered_pieces(const Tensor& logits_tv, std::int64_t valid_columns,
                                            double temperature, DType statistics);
// 2. This slice's summands of KL(teacher || student) of each row: sum_v q (log q - log p) with the
// teacher's q and the student's p; [t] in the dtype of the normalisers.
[[nodiscard]] Tensor divergence_terms(const LogitPair& logits, const LogitNormalisers& lse);
// 3. In place: the student's logits become the gradient of coefficient_t * KL, (p - q) /
// temperature, plus that of the cross entropy; padding columns 0.
void divergence_gradient_(const LogitPair& logits, const LogitNormalisers& lse,
                          const Tensor& coefficient_t, const CrossEntropyGradient& plain);

struct DistilledLosses {
  Tensor nll_t;         // as token_losses()
  Tensor divergence_t;  // KL(teacher || student)
};
// Both losses of each token, [t] in the statistics dtype, equal on all ranks of the vocabulary;
// differentiable in x and in the weights. `teacher_tv`: as the projection's output, capped already
// where the teacher caps. The logits' gradient takes their place in memory; logits are never in
// pieces (rows_at_once is not read). Shapes that do not fit: kInternal.
[[nodiscard]] DistilledLosses distilled_losses(const Tensor& x_th,
                                               std::unique_ptr<Projection> projection,
                                               const Tensor& teacher_tv, const Tensor& labels_t,
                                               double temperature, const TokenLossOptions& options);

enum class HiddenLoss {
  kCosine,       // 1 - cosine of the angle
  kMeanSquares,  // mean of the squared differences
};
// The distance of each row of x from that of `target_th` (a constant): [rows] in the statistics
// dtype, differentiable in x. Other shapes: kInternal.
[[nodiscard]] Tensor hidden_losses(const Tensor& x_th, const Tensor& target_th, HiddenLoss kind,
                                   DType statistics);

}  // namespace pentatron::ops
