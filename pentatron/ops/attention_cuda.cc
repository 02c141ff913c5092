// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/ops/attention_math.h"
#include "pentatron/ops/cuda_ops.h"
#include "pentatron/ops/dispatch.h"
#include "pentatron/tensor/cudnn_attention.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::ops {
namespace {

tensor::FlashArguments flash_arguments(const AttentionPlan& plan) {
  const AttentionSegments& rows = *plan.rows;
  // For a longest query of 1 the library reorders heads as decoding wants it: not for training.
  const std::int64_t least = rows.q_boundaries.defined() ? 2 : 0;
  return {.q_boundaries = rows.q_boundaries,
          .k_boundaries = rows.k_boundaries,
          .max_q_len = std::max(rows.max_q_len, least),
          .max_k_len = std::max(rows.max_k_len, least),
          .scale = plan.options.scale,
          .causal = plan.options.causal,
          .window = plan.options.window};
}

// The fused kernels count places from a segment's last key. Where rows stand between that and the
// last query, they know a window only if it hides nothing.
bool knows_window(const AttentionPlan& plan) {
  if (plan.options.window < 0) return true;
  const std::vector<AttentionSegment>& segments = plan.rows->segments;
  return std::all_of(segments.begin(), segments.end(), [&](const AttentionSegment& s) {
    const std::int64_t furthest = s.apart + s.k_len - 1;  // key from the last query
    return s.apart == 0 || s.q_len == 0 || s.k_len == 0 || furthest <= plan.options.window;
  });
}

// The library's fused backward takes neither slopes nor biases nor a cap, and has random numbers of
// its own. The fused kernels' statistics are fp32; batches without queries or keys need no kernel.
bool is_fused(const AttentionPlan& plan, const Tensor& q_tnd) {
  return tensor::flash_attention_takes(q_tnd) && plan.rows->num_q_rows > 0 &&
         plan.rows->num_k_rows > 0 && !plan.options.alibi_n.defined() &&
         !plan.options.bias_nd.defined() && plan.options.softcap == 0.0 &&
         plan.options.dropout.p == 0.0 && knows_window(plan) &&
         compute_dtype(q_tnd.scalar_type(), plan.options.statistics) ==
             compute_dtype(q_tnd.scalar_type());
}

// Segments of one length beside each other, as batches of whole samples have them, for cuDNN; none
// for others, and where the boundaries are padded, so that a recorded step may meet other ones.
std::optional<tensor::CudnnArguments> equal_segments(const AttentionPlan& plan,
                                                     const Tensor& q_tnd) {
  const std::vector<AttentionSegment>& segments = plan.rows->segments;
  if (segments.empty() || !tensor::cudnn_attention_takes(q_tnd)) return std::nullopt;
  const AttentionSegment& first = segments.front();
  if (first.q_len < 2 || first.k_len < 2 || (plan.options.causal && first.q_len != first.k_len) ||
      plan.rows->q_boundaries.size(0) != static_cast<std::int64_t>(segments.size()) + 1) {
    return std::nullopt;
  }
  for (const AttentionSegment& segment : segments) {
    if (segment.q_len != first.q_len || segment.k_len != first.k_len) return std::nullopt;
    // This library knows no window.
    const bool hides =
        plan.options.window >= 0 && segment.apart + segment.k_len - 1 > plan.options.window;
    if (hides) return std::nullopt;
  }
  return tensor::CudnnArguments{.segments = static_cast<std::int64_t>(segments.size()),
                                .q_len = first.q_len,
                                .k_len = first.k_len,
                                .scale = plan.options.scale,
                                .causal = plan.options.causal};
}

}  // namespace

AttentionOutput cuda::attention_forward(const AttentionPlan& plan, const Tensor& q_tnd,
                                        const Tensor& k_tgd, const Tensor& v_tgd) {
  const DType computed = compute_dtype(q_tnd.scalar_type(), plan.options.statistics);
  if (is_fused(plan, q_tnd)) {
    // The fused kernels do not tell it.
    if (plan.options.max_logit.defined()) {
      attention_math_max_logit(plan, q_tnd.to(computed), k_tgd.to(computed));
    }
    const auto equal = equal_segments(plan, q_tnd);
    const tensor::FlashOutput out =
        equal ? tensor::cudnn_attention_forward(q_tnd, k_tgd, v_tgd, *equal)
              : tensor::flash_attention_forward(q_tnd, k_tgd, v_tgd, flash_arguments(plan));
    // The library says +infinity of a query without keys.
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    const Tensor lse = plan.options.partial
                           ? out.lse_nt.masked_fill(out.lse_nt.eq(kInfinity), -kInfinity)
                           : out.lse_nt;
    return {.out_tnd = out.out_tnd, .lse_nt = lse, .library = {out.rng_state, out.unused}};
  }
  AttentionOutput out =
      attention_math_forward(plan, q_tnd.to(computed), k_tgd.to(computed), v_tgd.to(computed));
  if (!plan.options.partial) out.out_tnd = out.out_tnd.to(q_tnd.scalar_type());
  return out;
}

AttentionGradients cuda::attention_backward(const AttentionPlan& plan, const Tensor& q_tnd,
                                            const Tensor& k_tgd, const Tensor& v_tgd,
                                            const AttentionOutput& output, const Tensor& dout_tnd) {
  if (is_fused(plan, q_tnd)) {
    const tensor::FlashOutput kept{.out_tnd = output.out_tnd,
                                   .lse_nt = output.lse_nt,
                                   .rng_state = output.library.at(0),
                                   .unused = output.library.at(1)};
    // The forward's choice: it depends on the plan and the mode of the process alone.
    const auto equal = equal_segments(plan, q_tnd);
    const tensor::FlashGradients grads =
        equal ? tensor::cudnn_attention_backward(dout_tnd, q_tnd, k_tgd, v_tgd, kept, *equal)
              : tensor::flash_attention_backward(dout_tnd, q_tnd, k_tgd, v_tgd, kept,
                                                 flash_arguments(plan));
    return {.dq_tnd = grads.dq_tnd, .dk_tgd = grads.dk_tgd, .dv_tgd = grads.dv_tgd};
  }
  const DType computed = output.lse_nt.scalar_type();
  const DType dtype = plan.options.partial ? computed : q_tnd.scalar_type();
  const AttentionGradients grads =
      attention_math_backward(plan, q_tnd.to(computed), k_tgd.to(computed), v_tgd.to(computed),
                              output.out_tnd.to(computed), output.lse_nt, dout_tnd.to(computed));
  return {.dq_tnd = grads.dq_tnd.to(dtype),
          .dk_tgd = grads.dk_tgd.to(dtype),
          .dv_tgd = grads.dv_tgd.to(dtype),
          .dsink_n = {},
          .dbias_nd = grads.dbias_nd};
}

}  // namespace pentatron::ops
