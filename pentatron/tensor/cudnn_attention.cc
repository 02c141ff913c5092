// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tensor/cudnn_attention.h"

#include <ATen/Context.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention_backward.h>

#include <optional>

#include "pentatron/base/error.h"
#include "pentatron/tensor/device.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::tensor {
namespace {

constexpr std::int64_t kMaxChannels = 128;
constexpr int kLeastCapability = 9;  // major: on older GPUs FlashAttention-2 is the faster one
// Older ones had faults in backward on Hopper.
constexpr int kLeastVersion = 91800;

// [segments * len, n, d] as the library wants it: [segments, n, len, d], without a copy.
Tensor by_segment(const Tensor& x_tnd, std::int64_t segments) {
  const Tensor x = aligned_rows(x_tnd);
  return x.unflatten(0, {segments, x.size(0) / segments}).transpose(1, 2);
}
// The way back.
Tensor by_row(const Tensor& x_bnld) { return x_bnld.transpose(1, 2).flatten(0, 1); }

void check_rows(const Tensor& q_tnd, const Tensor& k_tgd, const CudnnArguments& a) {
  PENTATRON_CHECK(a.segments > 0 && a.q_len > 1 && a.k_len > 1 &&
                      q_tnd.size(0) == a.segments * a.q_len &&
                      k_tgd.size(0) == a.segments * a.k_len && (!a.causal || a.q_len == a.k_len),
                  kInternal, "cuDNN attention: {} and {} are not {} segments of {} and {} rows",
                  describe(q_tnd), describe(k_tgd), a.segments, a.q_len, a.k_len);
}

}  // namespace

bool cudnn_attention_takes(const Tensor& q_tnd) {
  const DType dtype = q_tnd.scalar_type();
  if (!q_tnd.is_cuda() || (dtype != DType::BFloat16 && dtype != DType::Half)) return false;
  if (q_tnd.size(2) % kAttentionAlignment != 0 || q_tnd.size(2) == 0 ||
      q_tnd.size(2) > kMaxChannels) {
    return false;
  }
  if (at::globalContext().deterministicAlgorithms()) return false;
  static const bool kGoodLibrary = cuda_versions().cudnn >= kLeastVersion;
  static const std::vector<GpuInfo> kGpus = gpus();
  return kGoodLibrary &&
         kGpus.at(static_cast<std::size_t>(q_tnd.device().index())).major >= kLeastCapability;
}

FlashOutput cudnn_attention_forward(const Tensor& q_tnd, const Tensor& k_tgd, const Tensor& v_tgd,
                                    const CudnnArguments& a) {
  check_rows(q_tnd, k_tgd, a);
  auto [out, lse, q_begins, k_begins, max_q, max_k, seed, offset, mask] =
      at::_scaled_dot_product_cudnn_attention(
          by_segment(q_tnd, a.segments), by_segment(k_tgd, a.segments),
          by_segment(v_tgd, a.segments), /*attn_bias=*/std::nullopt, /*compute_log_sumexp=*/true,
          /*dropout_p=*/0.0, a.causal, /*return_debug_mask=*/false, a.scale);
  // [segments, n, q_len], sometimes with a last dimension of 1, to [n, t].
  const Tensor lse_bnl = lse.reshape({a.segments, q_tnd.size(1), a.q_len});
  return {.out_tnd = by_row(out),
          .lse_nt = lse_bnl.transpose(0, 1).reshape({q_tnd.size(1), q_tnd.size(0)}),
          .rng_state = seed,
          .unused = offset};
}

FlashGradients cudnn_attention_backward(const Tensor& dout_tnd, const Tensor& q_tnd,
                                        const Tensor& k_tgd, const Tensor& v_tgd,
                                        const FlashOutput& output, const CudnnArguments& a) {
  check_rows(q_tnd, k_tgd, a);
  const Tensor lse_bnl1 =
      output.lse_nt.unflatten(1, {a.segments, a.q_len}).transpose(0, 1).contiguous().unsqueeze(3);
  auto [dq, dk, dv] = at::_scaled_dot_product_cudnn_attention_backward(
      by_segment(dout_tnd, a.segments), by_segment(q_tnd, a.segments),
      by_segment(k_tgd, a.segments), by_segment(v_tgd, a.segments),
      by_segment(output.out_tnd, a.segments), lse_bnl1, output.rng_state, output.unused,
      /*attn_bias=*/Tensor(), /*cum_seq_q=*/Tensor(), /*cum_seq_k=*/Tensor(), a.q_len, a.k_len,
      /*dropout_p=*/0.0, a.causal, a.scale);
  return {.dq_tnd = by_row(dq), .dk_tgd = by_row(dk), .dv_tgd = by_row(dv)};
}

}  // namespace pentatron::tensor
