// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tensor/host_memory.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "pentatron/base/error.h"

namespace pentatron::tensor {
namespace {

// Pieces of the library's pinned memory, each held by a tensor.
class PinnedMemory final : public std::pmr::memory_resource {
 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    constexpr std::size_t kAlignment = 64;  // of pages and blocks of pages
    PENTATRON_CHECK(alignment <= kAlignment, kInternal, "pinned memory aligned to {} bytes",
                    alignment);
    Tensor piece = at::empty({static_cast<std::int64_t>(std::max<std::size_t>(bytes, 1))},
                             at::TensorOptions().dtype(at::kByte).pinned_memory(true));
    void* const data = piece.mutable_data_ptr();
    const std::lock_guard lock(mutex_);
    pieces_.emplace(data, std::move(piece));
    return data;
  }
  void do_deallocate(void* data, std::size_t /*bytes*/, std::size_t /*alignment*/) override {
    const std::lock_guard lock(mutex_);
    pieces_.erase(data);
  }
  [[nodiscard]] bool do_is_equal(const memory_resource& other) const noexcept override {
    return this == &other;
  }

  std::mutex mutex_;
  std::map<void*, Tensor> pieces_;
};

Tensor over_memory(const void* data, std::size_t count, DType dtype,
                   std::shared_ptr<const void> owner) {
  return at::from_blob(
      const_cast<void*>(data), {static_cast<std::int64_t>(count)},
      [owner = std::move(owner)](void*) mutable { owner.reset(); },
      at::TensorOptions().dtype(dtype));
}

}  // namespace

std::shared_ptr<std::pmr::memory_resource> host_memory(Device device) {
  if (device.is_cpu()) return nullptr;
  return std::make_shared<PinnedMemory>();
}

Tensor view_of(std::span<const std::int64_t> values, std::shared_ptr<const void> owner) {
  return over_memory(values.data(), values.size(), DType::Long, std::move(owner));
}

Tensor view_of(std::span<const float> values, std::shared_ptr<const void> owner) {
  return over_memory(values.data(), values.size(), DType::Float, std::move(owner));
}

Tensor pinned_zeros(std::int64_t num_elements, DType dtype) {
  return at::zeros({num_elements}, at::TensorOptions().dtype(dtype).pinned_memory(true));
}

}  // namespace pentatron::tensor
