// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tensor/host_bytes.h"

#include "pentatron/base/error.h"

namespace pentatron::tensor {

std::span<std::byte> host_bytes(const Tensor& t) {
  PENTATRON_CHECK(t.is_contiguous() && t.device().is_cpu(), kInternal,
                  "the bytes of {}: expected contiguous memory of the host", describe(t));
  return {static_cast<std::byte*>(t.mutable_data_ptr()),
          static_cast<std::size_t>(t.numel() * item_bytes(t.scalar_type()))};
}

}  // namespace pentatron::tensor
