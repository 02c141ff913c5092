// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "pentatron/tensor/tensor.h"

namespace pentatron::tensor {

// 1-D zeros on the host in pinned memory, which a GPU copies from and to while the host works.
// Needs a GPU.
[[nodiscard]] Tensor pinned_zeros(std::int64_t num_elements, DType dtype);

}  // namespace pentatron::tensor
