// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tensor/linear_algebra.h"

#include <ATen/ops/linalg_eigh.h>
#include <ATen/ops/linalg_qr.h>

namespace pentatron::tensor {

Tensor eigenvectors(const Tensor& symmetric_nn) {
  return std::get<1>(at::linalg_eigh(symmetric_nn)).flip(1);  // it counts upwards
}

Tensor orthogonal_factor(const Tensor& x_mn) { return std::get<0>(at::linalg_qr(x_mn)); }

}  // namespace pentatron::tensor
