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

// The options with their tensors outside the graph: what a Backward keeps.
[[nodiscard]] AttentionOptions without_graph(AttentionOptions options);

struct AttentionOutput {
  Tensor out_tnd;               // in q's dtype
  Tensor lse_nt;                // log-sum-exp of each query in the computing dtype
  std::vector<Tensor> library;  // what a library's backward wants back from its forward
};

struct AttentionGradients {
  Tensor dq_tnd, dk_tgd, dv_tgd;  // in the dtype of q
  Tensor dsink_n = {};            // in the dtype of the sink; undefined: there is none
  Tensor dbias_nd = {};           // in that of the bias; undefined: there is none
};

// The two halves of attention() for those who put it together from several plans: nothing is
// recorded, nothing kept. Shapes and errors as there; q has the plan's queries, k and v its keys.
// Of partial keys no sink is added (add_sink).
[[nodiscard]] AttentionOutput attention_forward(const AttentionPlan& plan, const Tensor& q_tnd,
                                                const Tensor& k_tgd, const Tensor& v_tgd);
[[nodiscard]] AttentionGradients attention_backward(const AttentionPlan& plan, const Tensor& q_tnd,
                                                    const Tensor& k_tgd, const Tensor& v_tgd,
                                                    const AttentionOutput& output,
                                                    const Tensor& dout_tnd);

// Attention to keys that came in parts: `sum` becomes what it and `part` give together, in the
// dtype of its log-sum-exp, never exponentiating more than 0; an undefined sum becomes the part.
// Queries that see no key of a part have the log-sum-exp -infinity there. `library` stays with the
// parts.
void merge_attention(AttentionOutput& sum, const AttentionOutput& part);

}  // namespace pentatron::ops
