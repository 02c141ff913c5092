// SPDX-License-Identifier: Apache-2.0
#include "pentatron/distributed/buffer_allocator.h"

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

std::unique_ptr<BufferAllocator> make_default_allocator() {
  return std::make_unique<DefaultAllocator>();
}

}  // namespace pentatron::distributed
