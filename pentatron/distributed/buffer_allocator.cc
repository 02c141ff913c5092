// SPDX-License-Identifier: Apache-2.0
#include "pentatron/distributed/buffer_allocator.h"

#include "pentatron/tensor/host_memory.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::distributed {
namespace {

class DefaultAllocator final : public BufferAllocator {
 public:
  Tensor allocate(std::int64_t num_elements, DType dtype, Device device) override {
    return tensor::zeros({num_elements}, dtype, device);
  }
  Tensor allocate_transient(std::int64_t num_elements, DType dtype, Device device) override {
    return tensor::empty({num_elements}, dtype, device);
  }
};

}  // namespace

Tensor BufferAllocator::allocate_on_host(std::int64_t num_elements, DType dtype, bool pinned) {
  return pinned ? tensor::pinned_zeros(num_elements, dtype) : allocate(num_elements, dtype, kCpu);
}

std::unique_ptr<BufferAllocator> make_default_allocator() {
  return std::make_unique<DefaultAllocator>();
}

}  // namespace pentatron::distributed
