// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tensor/attention_library.h"

#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>

#include <optional>

#include "pentatron/base/error.h"

namespace pentatron::tensor {
namespace {

// To the right nothing is cut but by a causal mask.
constexpr std::int64_t kNoLimit = -1;

std::optional<Tensor> optional_of(const Tensor& t) {
  return t.defined() ? std::optional<Tensor>(t) : std::nullopt;
}

}  // namespace

Tensor aligned_rows(const Tensor& x_tnd) {
  const bool fits = x_tnd.stride(2) == 1 && x_tnd.stride(1) % kAttentionAlignment == 0 &&
                    x_tnd.stride(0) % kAttentionAlignment == 0 && x_tnd.stride(0) > 0 &&
                    x_tnd.stride(1) > 0 &&
                    reinterpret_cast<std::uintptr_t>(x_tnd.const_data_ptr()) % 16 == 0;
  return fits ? x_tnd : x_tnd.contiguous();
}

bool flash_attention_takes(const Tensor& q_tnd, std::int64_t channels) {
  const DType dtype = q_tnd.scalar_type();
  return q_tnd.is_cuda() && (dtype == DType::BFloat16 || dtype == DType::Half) &&
         channels % kAttentionAlignment == 0 && channels > 0 && channels <= 256;
}

FlashOutput flash_attention_forward(const Tensor& q_tnd, const Tensor& k_tgd, const Tensor& v_tgd,
                                    const FlashArguments& arguments) {
  Tensor q = aligned_rows(q_tnd), k = aligned_rows(k_tgd), v = aligned_rows(v_tgd);
  const bool dense = !arguments.q_boundaries.defined();
  if (dense) {
    q = q.unsqueeze(0);
    k = k.unsqueeze(0);
    v = v.unsqueeze(0);
  }
  auto [out, lse, rng_state, unused, debug] = at::_flash_attention_forward(
      q, k, v, optional_of(arguments.q_boundaries), optional_of(arguments.k_boundaries),
      arguments.max_q_len, arguments.max_k_len, /*dropout_p=*/0.0, arguments.causal,
      /*return_debug_mask=*/false, std::optional<double>(arguments.scale), arguments.window,
      kNoLimit);
  FlashOutput result{.out_tnd = dense ? out.squeeze(0) : out,
                     .lse_nt = dense ? lse.squeeze(0) : lse,
                     .rng_state = rng_state,
                     .unused = unused};
  PENTATRON_CHECK(result.out_tnd.sizes() == q_tnd.sizes() && result.lse_nt.dim() == 2 &&
                      result.lse_nt.size(0) == q_tnd.size(1) &&
                      result.lse_nt.size(1) == q_tnd.size(0),
                  kInternal, "flash attention: output {} and log-sum-exp {} for queries {}",
                  describe(result.out_tnd), describe(result.lse_nt), describe(q_tnd));
  return result;
}

FlashGradients flash_attention_backward(const Tensor& dout_tnd, const Tensor& q_tnd,
                                        const Tensor& k_tgd, const Tensor& v_tgd,
                                        const FlashOutput& output,
                                        const FlashArguments& arguments) {
  PENTATRON_CHECK(arguments.q_boundaries.defined(), kInternal,
                  "flash attention: a gradient without segments");
  auto [dq, dk, dv] = at::_flash_attention_backward(
      dout_tnd.contiguous(), aligned_rows(q_tnd), aligned_rows(k_tgd), aligned_rows(v_tgd),
      output.out_tnd, output.lse_nt, arguments.q_boundaries, arguments.k_boundaries,
      arguments.max_q_len, arguments.max_k_len, /*dropout_p=*/0.0, arguments.causal,
      output.rng_state, output.unused, std::optional<double>(arguments.scale), arguments.window,
      kNoLimit);
  return {.dq_tnd = dq, .dk_tgd = dk, .dv_tgd = dv};
}

}  // namespace pentatron::tensor
