// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include "pentatron/tensor/tensor.h"

namespace pentatron::tensor {

// The memory of a contiguous tensor of the host, to be written too: a const Tensor is a handle.
[[nodiscard]] std::span<std::byte> host_bytes(const Tensor& t);

}  // namespace pentatron::tensor
