// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tensor/host_memory.h"

#include <ATen/ops/zeros.h>

namespace pentatron::tensor {

Tensor pinned_zeros(std::int64_t num_elements, DType dtype) {
  return at::zeros({num_elements}, at::TensorOptions().dtype(dtype).pinned_memory(true));
}

}  // namespace pentatron::tensor
