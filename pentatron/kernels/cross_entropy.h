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

// Both at once, where the whole vocabulary is here: pieces with the logits' gradient in place of
// the logits, for the lse that the pieces give. One reading and one writing of the logits. Not for
// fp64 (cudaErrorInvalidValue); where softmax_with_gradient_fits, which a row of more than 600,000
// bytes does not.
[[nodiscard]] cudaError_t softmax_with_gradient(const LogitRows& logits, void* x,
                                                const std::int64_t* labels,
                                                std::int64_t column_begin,
                                                const float* coefficient_t, float* max_t,
                                                float* sum_exp_t, float* target_t,
                                                cudaStream_t stream);
[[nodiscard]] bool softmax_with_gradient_fits(const LogitRows& logits, const void* x);

}  // namespace pentatron::kernels
