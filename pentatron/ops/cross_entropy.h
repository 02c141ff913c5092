// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/tensor/precision.h"

namespace pentatron::ops {

// The local pieces of a vocabulary-parallel cross entropy; the leaf in parallel_layers/ does the
// reductions between them. logits [t, v_local] in the logits dtype; columns >= valid_columns are
// padding and never enter. labels int64 [t], global ids; column 0 is the id column_begin. Shapes
// that do not fit: kInternal.

// 1. Of each row [t], in the statistics dtype: its largest logit (without valid columns the lowest
// finite value), the sum of exp(logit - that), and the target's logit (0 where the label is not on
// this rank). Logits are read from memory once.
struct SoftmaxPieces {
  Tensor max_t;
  Tensor sum_exp_t;
  Tensor target_logit_t;
  Tensor logit_sum_t = {};  // of the valid columns, where it was asked for
};
[[nodiscard]] SoftmaxPieces softmax_pieces(const Tensor& logits_tv, const Tensor& labels_t,
                                           std::int64_t column_begin, std::int64_t valid_columns,
                                           DType statistics, bool logit_sum = false);
// sum_exp_t as it is for a larger maximum, the whole row's: sum_exp exp(max - row_max).
[[nodiscard]] Tensor sum_exp_below(const SoftmaxPieces& pieces, const Tensor& row_max_t);
// The distribution that the softmax is compared with: `every` for each id, and `label` more for the
// label.
struct LossTarget {
  double label = 1.0;
  double every = 0.0;
};
// 2. In place: logits become d(loss)/d(logits) = (exp(logit - lse) - target) * coefficient_t;
// padding columns 0.
void softmax_gradient_(Tensor logits_tv, const Tensor& labels_t, const Tensor& log_sum_exp_t,
                       const Tensor& coefficient_t, std::int64_t column_begin,
                       std::int64_t valid_columns, const LossTarget& target = {});
// Both at once, where the whole vocabulary is here and the coefficients are known: the pieces, and
// in place of the logits their gradient for the log-sum-exp that the pieces give. Where the device
// can, logits are read and written once.
[[nodiscard]] SoftmaxPieces softmax_with_gradient_(Tensor logits_tv, const Tensor& labels_t,
                                                   const Tensor& coefficient_t,
                                                   std::int64_t column_begin,
                                                   std::int64_t valid_columns, DType statistics);

}  // namespace pentatron::ops
