// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/tensor/tensor.h"

// Factorisations of fp32 and fp64 matrices, on the device of their argument; on a GPU the host may
// wait for them.
namespace pentatron::tensor {

// Orthonormal eigenvectors of a symmetric matrix [n, n], as columns by descending eigenvalue.
[[nodiscard]] Tensor eigenvectors(const Tensor& symmetric_nn);
// Q of x = Q R, [m, n] with m >= n: orthonormal columns.
[[nodiscard]] Tensor orthogonal_factor(const Tensor& x_mn);

}  // namespace pentatron::tensor
