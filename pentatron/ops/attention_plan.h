// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "pentatron/ops/attention.h"
#include "pentatron/tensor/tensor.h"

namespace pentatron::ops {

// What an implementation needs besides the tensors: the batch's rows, shared by all layers, and the
// options of the call.
struct AttentionPlan {
  AttentionSegmentsPtr rows;
  AttentionOptions options;
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
