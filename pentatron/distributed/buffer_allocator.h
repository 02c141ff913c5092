// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "pentatron/tensor/tensor.h"

namespace pentatron::distributed {

// Where the memory of a parameter store comes from, so that registered or symmetric memory can be
// put under its buffers.
class BufferAllocator {
 public:
  virtual ~BufferAllocator() = default;
  // 1-D, zeroed, for the life of the store.
  [[nodiscard]] virtual Tensor allocate(std::int64_t num_elements, DType dtype, Device device) = 0;
  // 1-D, with any values, for the time of a unit.
  [[nodiscard]] virtual Tensor allocate_transient(std::int64_t num_elements, DType dtype,
                                                  Device device) = 0;
  // 1-D, zeroed, on the host, in memory that a GPU reads and writes by itself where `pinned`.
  [[nodiscard]] virtual Tensor allocate_on_host(std::int64_t num_elements, DType dtype,
                                                bool pinned);
};
[[nodiscard]] std::unique_ptr<BufferAllocator> make_default_allocator();

}  // namespace pentatron::distributed
