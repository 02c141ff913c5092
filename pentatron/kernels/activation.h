// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/base/activation_kind.h"
#include "pentatron/kernels/types.h"

// Elementwise activations over contiguous memory of `type` on the GPU; formulas stand in
// ops/activation.h.
namespace pentatron::kernels {

[[nodiscard]] cudaError_t activation_forward(Activation kind, Type type, const void* x, void* y,
                                             std::int64_t count, cudaStream_t stream);
[[nodiscard]] cudaError_t activation_backward(Activation kind, Type type, const void* x,
                                              const void* dy, void* dx, std::int64_t count,
                                              cudaStream_t stream);
// dx [rows, columns] as activation_backward gives it, and in the same pass the partials of
// column_sums of dx (reduce.h), in the computing type (fp64 for fp64, else fp32): column_sums'
// bits. Reads x and dy once, writes dx; no atomics, a fixed order.
[[nodiscard]] cudaError_t activation_bias_backward(Activation kind, Type type, const void* x,
                                                   const void* dy, void* dx, void* partials,
                                                   std::int64_t rows, std::int64_t columns,
                                                   cudaStream_t stream);
// x [rows, 2 * columns] = [gate | up], y and dy [rows, columns]. `largest` becomes max |y| (|dx|)
// as fp32, a NaN where there is one; in the same pass for bf16 in vectors. Null: not asked.
[[nodiscard]] cudaError_t gated_forward(const Gate& gate, Type type, const void* x, void* y,
                                        std::int64_t rows, std::int64_t columns, float* largest,
                                        cudaStream_t stream);
[[nodiscard]] cudaError_t gated_backward(const Gate& gate, Type type, const void* x, const void* dy,
                                         void* dx, std::int64_t rows, std::int64_t columns,
                                         float* largest, cudaStream_t stream);

}  // namespace pentatron::kernels
