// SPDX-License-Identifier: Apache-2.0
#include "pentatron/ops/cpu_ops.h"

namespace pentatron::ops {

// In the slot's own dtype; zero rows give zeros.
void cpu::column_sums(const Tensor& dy_to, const GradSlot& slot) {
  const DType wide = slot.buffer.scalar_type() == DType::Double ? DType::Double : DType::Float;
  const Tensor sum = dy_to.sum(IntList{0}, /*keepdim=*/false, wide);
  if (slot.accumulate) {
    slot.buffer.add_(sum);
  } else {
    slot.buffer.copy_(sum);
  }
}

}  // namespace pentatron::ops
