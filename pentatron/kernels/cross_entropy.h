// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/kernels/types.h"

// The local pieces of a vocabulary-parallel cross entropy (ops/cross_entropy.h) over contiguous
// logits [rows, columns], of which the first `valid` columns count. Results in the computing type.
namespace pentatron::kernels {

struct LogitRows {
  Type type;
  std::int64_t rows, columns, valid;
};

// Largest x of each row (the lowest finite value without valid columns), sum of exp(x - that), x at
// the label (0 if it is not among the columns [column_begin, column_begin + valid)) and, where
// logit_sum_t is not null, the sum of x. Reads every logit once.
[[nodiscard]] cudaError_t softmax_pieces(const LogitRows& logits, const void* x,
                                         const std::int64_t* labels, std::int64_t column_begin,
                                         void* max_t, void* sum_exp_t, void* target_t,
                                         void* logit_sum_t, cudaStream_t stream);
// As ops::LossTarget.
struct SoftmaxTarget {
  double label, every;
};
// x := (exp(x - lse) - target) * coefficient; 0 in columns that do not count.
[[nodiscard]] cudaError_t softmax_gradient(const LogitRows& logits, void* x, const void* lse_t,
                                           const void* coefficient_t, const std::int64_t* labels,
                                           std::int64_t column_begin, const SoftmaxTarget& target,
                                           cudaStream_t stream);

}  // namespace pentatron::kernels
