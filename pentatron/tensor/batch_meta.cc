// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tensor/batch_meta.h"

#include "pentatron/base/error.h"
#include "pentatron/tensor/ops.h"

namespace pentatron {

void check_positions(const BatchMeta& batch, std::int64_t num_positions) {
  PENTATRON_CHECK(static_cast<std::int64_t>(batch.host_positions.size()) == batch.num_tokens,
                  kInternal, "BatchMeta::host_positions has {} entries for {} tokens",
                  batch.host_positions.size(), batch.num_tokens);
  for (std::size_t row = 0; row < batch.host_positions.size(); ++row) {
    const std::int64_t position = batch.host_positions[row];
    PENTATRON_CHECK(position >= 0 && position < num_positions, kData,
                    "token {} of a batch has the position {}, the model has {} "
                    "(--max-position-embeddings, --seq-length)",
                    row, position, num_positions);
  }
}

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
