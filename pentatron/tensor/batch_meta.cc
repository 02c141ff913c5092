// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tensor/batch_meta.h"

namespace pentatron {

BatchMeta to_device(BatchMeta batch, Device device) {
  for (Tensor* t : {&batch.tokens, &batch.labels, &batch.loss_mask, &batch.positions,
                    &batch.sample_ids, &batch.token_index}) {
    if (t->defined()) *t = t->to(device);
  }
  return batch;
}

}  // namespace pentatron
