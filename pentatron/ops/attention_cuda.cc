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
bool is_fused(const AttentionPlan& plan, const Tensor& q_tnd, std::int64_t channels) {
  return tensor::flash_attention_takes(q_tnd, channels) && plan.rows->num_q_rows > 0 &&
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

// Heads of `channels` channels, zeros behind their own: as keys and queries they change no score,
// as values they give zeros.
Tensor filled(const Tensor& x_tnd, std::int64_t channels) {
  const std::int64_t own = x_tnd.size(2);
  if (own == channels) return x_tnd;
  const Tensor wide =
      tensor::zeros({x_tnd.size(0), x_tnd.size(1), channels}, x_tnd.scalar_type(), x_tnd.device());
  wide.narrow(2, 0, own).copy_(x_tnd);
  return wide;
}
// The way back.
Tensor cut(const Tensor& x_tnd, std::int64_t channels) {
  return x_tnd.size(2) == channels ? x_tnd : x_tnd.narrow(2, 0, channels).contiguous();
}
// The fused kernels know heads of one size.
std::int64_t fused_channels(const Tensor& q_tnd, const Tensor& v_tgd) {
  return std::max(q_tnd.size(2), v_tgd.size(2));
}

}  // namespace

AttentionOutput cuda::attention_forward(const AttentionPlan& plan, const Tensor& q_tnd,
                                        const Tensor& k_tgd, const Tensor& v_tgd) {
  const DType computed = compute_dtype(q_tnd.scalar_type(), plan.options.statistics);
  const std::int64_t channels = fused_channels(q_tnd, v_tgd);
  if (is_fused(plan, q_tnd, channels)) {
    // The fused kernels do not tell it.
    if (plan.options.max_logit.defined()) {
      attention_math_max_logit(plan, q_tnd.to(computed), k_tgd.to(computed));
    }
    const Tensor q = filled(q_tnd, channels), k = filled(k_tgd, channels);
    const Tensor v = filled(v_tgd, channels);
    const auto equal = equal_segments(plan, q);
    const tensor::FlashOutput out =
        equal ? tensor::cudnn_attention_forward(q, k, v, *equal)
              : tensor::flash_attention_forward(q, k, v, flash_arguments(plan));
    // The library says +infinity of a query without keys.
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    const Tensor lse = plan.options.partial
                           ? out.lse_nt.masked_fill(out.lse_nt.eq(kInfinity), -kInfinity)
                           : out.lse_nt;
    return {.out_tnd = cut(out.out_tnd, v_tgd.size(2)),
            .lse_nt = lse,
            .library = {out.rng_state, out.unused}};
  }
  AttentionOutput out =
      attention_math_forward(plan, q_tnd.to(computed), k_tgd.to(computed), v_tgd.to(computed));
  if (!plan.options.partial) out.out_tnd = out.out_tnd.to(q_tnd.scalar_type());
  return out;
}

AttentionGradients cuda::attention_backward(const AttentionPlan& plan, const Tensor& q_tnd,
                                            const Tensor& k_tgd, const Tensor& v_tgd,
                                            const AttentionOutput& output, const Tensor& dout_tnd) {
  const std::int64_t channels = fused_channels(q_tnd, v_tgd);
  if (is_fused(plan, q_tnd, channels)) {
    const Tensor q = filled(q_tnd, channels), k = filled(k_tgd, channels);
    const Tensor v = filled(v_tgd, channels), dout = filled(dout_tnd, channels);
    const tensor::FlashOutput kept{.out_tnd = filled(output.out_tnd, channels),
                                   .lse_nt = output.lse_nt,
                                   .rng_state = output.library.at(0),
                                   .unused = output.library.at(1)};
    // The forward's choice: it depends on the plan and the mode of the process alone.
    const auto equal = equal_segments(plan, q);
    const tensor::FlashGradients grads =
        equal ? tensor::cudnn_attention_backward(dout, q, k, v, kept, *equal)
              : tensor::flash_attention_backward(dout, q, k, v, kept, flash_arguments(plan));
    return {.dq_tnd = cut(grads.dq_tnd, q_tnd.size(2)),
            .dk_tgd = cut(grads.dk_tgd, q_tnd.size(2)),
            .dv_tgd = cut(grads.dv_tgd, v_tgd.size(2))};
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
