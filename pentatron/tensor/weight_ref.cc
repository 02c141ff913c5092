// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tensor/weight_ref.h"

#include <algorithm>

#include "pentatron/base/error.h"
#include "pentatron/tensor/ops.h"

namespace pentatron {

void write_grad(WeightRef& weight, const Tensor& gradient) {
  if (!weight.trainable()) return;
  const tensor::NoGrad no_grad;
  const GradSlot slot = weight.grad_slot();
  PENTATRON_CHECK(
      slot.buffer.defined() && gradient.defined() && slot.buffer.sizes() == gradient.sizes(),
      kInternal, "a gradient {} was written into a slot {}", tensor::describe(gradient),
      tensor::describe(slot.buffer));
  write_slot(slot, gradient);
}

void write_slot(const GradSlot& slot, const Tensor& gradient) {
  const Tensor& buffer = slot.buffer;
  // Vectors of a CPU, of which every layer has many, without the dispatcher.
  if (buffer.is_cpu() && gradient.is_cpu() && buffer.scalar_type() == DType::Float &&
      gradient.scalar_type() == DType::Float && buffer.dim() == 1 && buffer.is_contiguous() &&
      gradient.is_contiguous() && buffer.numel() == gradient.numel()) {
    float* to = buffer.data_ptr<float>();
    const float* from = gradient.const_data_ptr<float>();
    const std::int64_t n = buffer.numel();
    if (slot.accumulate) {
      for (std::int64_t i = 0; i < n; ++i) to[i] += from[i];
    } else {
      std::copy_n(from, n, to);
    }
  } else if (slot.accumulate) {
    buffer.add_(gradient);
  } else {
    buffer.copy_(gradient);
  }
}

}  // namespace pentatron
