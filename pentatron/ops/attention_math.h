// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/ops/attention_plan.h"

// Attention from the library's batched products, a block of queries at a time: for dtypes and sizes
// that no fused kernel of a device takes. Memory is linear in tokens; results depend on the inputs
// alone as far as the library's products do. Runs on every device; reads no tensor on the host.
namespace pentatron::ops {

// Scores of one block of queries: 2^25 elements are 128 MiB in fp32.
constexpr std::int64_t kAttentionMathScores = std::int64_t{1} << 25;

// q, k, v all fp32 or all fp64 (the computing dtype), any strides. Dropout where the rows are known
// on the device (AttentionSegments::q_places): a GPU; else kUnsupported.
[[nodiscard]] AttentionOutput attention_math_forward(
    const AttentionPlan& plan, const Tensor& q_tnd, const Tensor& k_tgd, const Tensor& v_tgd,
    std::int64_t max_scores = kAttentionMathScores);
// Raises the plan's options.max_logit alone.
void attention_math_max_logit(const AttentionPlan& plan, const Tensor& q_tnd, const Tensor& k_tgd,
                              std::int64_t max_scores = kAttentionMathScores);
[[nodiscard]] AttentionGradients attention_math_backward(
    const AttentionPlan& plan, const Tensor& q_tnd, const Tensor& k_tgd, const Tensor& v_tgd,
    const Tensor& out_tnd, const Tensor& lse_nt, const Tensor& dout_tnd,
    std::int64_t max_scores = kAttentionMathScores);

}  // namespace pentatron::ops
