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

// Largest x of each row (the lowest finite value without valid columns), sum of exp(x - that) and x
// at the label (0 if it is not among the columns [column_begin, column_begin + valid)). Reads every
// logit once.
[[nodiscard]] cudaError_t softmax_pieces(const LogitRows& logits, const void* x,
                                         const std::int64_t* labels, std::int64_t column_begin,
                                         void* max_t, void* sum_exp_t, void* target_t,
                                         cudaStream_t stream);
// x := (exp(x - lse) - onehot) * coefficient; 0 in columns that do not count.
[[nodiscard]] cudaError_t softmax_gradient(const LogitRows& logits, void* x, const void* lse_t,
                                           const void* coefficient_t, const std::int64_t* labels,
                                           std::int64_t column_begin, cudaStream_t stream);

}  // namespace pentatron::kernels
