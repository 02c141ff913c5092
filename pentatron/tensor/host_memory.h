// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <memory_resource>
#include <span>

#include "pentatron/tensor/tensor.h"

// Host memory that others fill and tensors read where it is.
namespace pentatron::tensor {

// Memory that a device reads by itself, so that a copy from it goes on while the host does other
// things: pinned for a GPU, null (plain memory does) for the CPU. Safe from several threads; slow
// to give, so its users keep what they have.
[[nodiscard]] std::shared_ptr<std::pmr::memory_resource> host_memory(Device device);

// A tensor of the CPU ([values], of their dtype) over memory that `owner` keeps alive as long as
// the tensor, its views or what was saved of them live. Not to be written to.
[[nodiscard]] Tensor view_of(std::span<const std::int64_t> values,
                             std::shared_ptr<const void> owner);
[[nodiscard]] Tensor view_of(std::span<const float> values, std::shared_ptr<const void> owner);

// 1-D zeros in pinned memory, which a GPU copies from and to while the host works. Needs a GPU.
[[nodiscard]] Tensor pinned_zeros(std::int64_t num_elements, DType dtype);

}  // namespace pentatron::tensor
