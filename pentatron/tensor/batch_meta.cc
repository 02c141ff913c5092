// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tensor/batch_meta.h"

#include "pentatron/tensor/ops.h"

namespace pentatron {

BatchMeta to_device(BatchMeta batch, Device device) {
  for (Tensor* t : {&batch.tokens, &batch.labels, &batch.loss_mask, &batch.positions,
                    &batch.sample_ids, &batch.token_index}) {
    if (t->defined()) *t = t->to(device);
  }
  if (device.is_cpu()) {
    batch.cu_seqlens_device = Tensor();
  } else if (!batch.cu_seqlens_device.defined() || batch.cu_seqlens_device.device() != device) {
    const std::vector<std::int32_t> lengths(batch.cu_seqlens.begin(), batch.cu_seqlens.end());
    batch.cu_seqlens_device = tensor::from_vector(lengths).to(device);
  }
  return batch;
}

}  // namespace pentatron
