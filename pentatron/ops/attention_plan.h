// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "pentatron/ops/attention.h"
#include "pentatron/tensor/tensor.h"

namespace pentatron::ops {

// Rows of queries that see rows of keys. Causal: query i sees the keys up to i + (k_len - q_len).
struct AttentionSegment {
  std::int64_t q_begin = 0;
  std::int64_t q_len = 0;
  std::int64_t k_begin = 0;
  std::int64_t k_len = 0;
};

struct AttentionPlan {
  std::vector<AttentionSegment> segments;
  AttentionOptions options;
  // For dropout only: [tokens] of the micro-batch.
  std::vector<std::int64_t> sample_ids;
  std::vector<std::int64_t> token_index;
  // Of a micro-batch on a device: int32 [segments + 1], rows where segments begin, queries and keys
  // alike. Undefined on CPUs and for one segment with cached keys.
  Tensor cu_seqlens;
  std::int64_t max_seqlen = 0;  // no segment has more queries or keys
};

struct AttentionOutput {
  Tensor out_tnd;               // in q's dtype
  Tensor lse_nt;                // log-sum-exp of each query in the computing dtype
  std::vector<Tensor> library;  // what a library's backward wants back from its forward
};

struct AttentionGradients {
  Tensor dq_tnd, dk_tgd, dv_tgd;  // in the dtype of q
};

}  // namespace pentatron::ops
