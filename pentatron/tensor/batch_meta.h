// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "pentatron/tensor/tensor.h"

namespace pentatron {

// What is known of one micro-batch before its forward. Activations are [tokens, hidden],
// sample-major: the rows of sample 0, then those of sample 1; a sample may hold several documents
// (attention does not cross them when the mask is reset). Token tensors are int64 [tokens]; host
// vectors hold the same values.
struct BatchMeta {
  std::int64_t num_tokens = 0;
  std::vector<std::int64_t> cu_seqlens;  // attention segments: 0 = first, num_tokens = last
  std::vector<std::int64_t> cu_samples;  // rows of each sample, as cu_seqlens
  std::vector<std::int64_t>
      host_sample_ids;  // [tokens] position of the row's sample in training order
  std::vector<std::int64_t> host_token_index;  // [tokens] index of the row inside its sample
  std::vector<std::int64_t>
      host_positions;           // [tokens] position id (restarts at documents if asked)
  std::int64_t max_seqlen = 0;  // longest attention segment
  // int32 copy of cu_seqlens on the device of the tensors below; undefined on CPUs, which read the
  // host's.
  Tensor cu_seqlens_device;
  Tensor tokens;     // input ids
  Tensor labels;     // targets
  Tensor loss_mask;  // float: weight of each target, 0 = not counted
  Tensor positions;
  Tensor sample_ids;
  Tensor token_index;
};

// kData error naming the first position outside [0, num_positions), which a model's tables do not
// have: on a card nothing would refuse it later. Reads the host's copy alone.
void check_positions(const BatchMeta& batch, std::int64_t num_positions);

// The same batch with its tensors on `device`; what is there already is not copied.
[[nodiscard]] BatchMeta to_device(BatchMeta batch, Device device);

}  // namespace pentatron
