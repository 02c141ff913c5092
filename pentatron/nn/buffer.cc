// SPDX-License-Identifier: Apache-2.0
#include "pentatron/nn/buffer.h"

#include <utility>

#include "pentatron/tensor/ops.h"

namespace pentatron::nn {

Buffer::Buffer(std::string local_name, ShardSpec spec, DType dtype, Device device)
    : local_name_(std::move(local_name)), spec_(std::move(spec)) {
  check_spec(spec_);
  data_ = tensor::zeros(spec_.local_shape, dtype, device);
}

Tensor Buffer::part_values(const ShardPart& part) const {
  return part_view(data_, part).view({-1});
}

}  // namespace pentatron::nn
