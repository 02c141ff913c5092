// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/kernels/types.h"

// Sums in two stages with fixed partitions.
namespace pentatron::kernels {

// Rows of partial sums of column_sums: depends on the number of rows alone.
[[nodiscard]] std::int64_t column_sum_partials(std::int64_t rows);
// slot[c] (+)= sum over rows of x[r, c]. partials: column_sum_partials(rows) * columns elements,
// fp64 if x or the slot is fp64, else fp32.
[[nodiscard]] cudaError_t column_sums(Type type, const void* x, std::int64_t rows,
                                      std::int64_t columns, const Slot& slot, void* partials,
                                      cudaStream_t stream);

// slot[c] (+)= sum over p of partials[p, c], which are fp64 if `wide`, else fp32.
[[nodiscard]] cudaError_t sum_partials(bool wide, const void* partials, std::int64_t count,
                                       std::int64_t columns, const Slot& slot, cudaStream_t stream);

// Doubles that sum_of_squares needs as scratch.
constexpr std::int64_t kSquarePartials = 1024;
// *out = sum of x^2 in fp64.
[[nodiscard]] cudaError_t sum_of_squares(Type type, const void* x, std::int64_t count,
                                         double* partials, double* out, cudaStream_t stream);

}  // namespace pentatron::kernels
