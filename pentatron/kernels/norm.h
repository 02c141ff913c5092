// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/kernels/types.h"

// Layer norm and RMS norm over rows of `columns` contiguous elements of `type`; weight and bias in
// `type` or in the computing type (weight_computing). Statistics in the computing type.
namespace pentatron::kernels {

struct NormArguments {
  Type type;
  bool weight_computing;  // weight and bias are fp32 (fp64) whatever `type` is
  std::int64_t rows, columns;
  const void* x;
  const void* weight;
  // Forward: added to x first, the sum rounded to `type` and written to `sum`. Backward: another
  // gradient of x, added to dx before it is rounded. Null: none.
  const void* delta = nullptr;
  void* sum = nullptr;
  // Forward: becomes max |y| as fp32, a NaN where there is one; in the same pass for bf16 where
  // registers hold a row, else in one of its own. Null: not asked.
  float* largest = nullptr;
};

// y = (x - mean) rstd weight + bias. mean null: RMS norm; bias may be null. Moves two rows of
// columns a row, four with delta.
[[nodiscard]] cudaError_t norm_forward(const NormArguments& in, const void* bias, double eps,
                                       void* y, void* mean, void* rstd, cudaStream_t stream);

// Rows of partial sums that norm_backward writes: depends on the sizes alone.
[[nodiscard]] std::int64_t norm_partials(std::int64_t rows, std::int64_t columns);

// dx (may be null: then delta is not read); sums of weight and bias gradients, [columns] in the
// computing type (null: not asked; dbias also for RMS norm). partials: 2 * norm_partials(rows,
// columns) * columns elements of the computing type, unused without dweight. Moves three rows of
// columns a row, four with delta. Deterministic, as forward is: no atomics, partitions by sizes
// alone.
[[nodiscard]] cudaError_t norm_backward(const NormArguments& in, const void* dy, const void* mean,
                                        const void* rstd, void* dx, void* dweight, void* dbias,
                                        void* partials, cudaStream_t stream);

}  // namespace pentatron::kernels
