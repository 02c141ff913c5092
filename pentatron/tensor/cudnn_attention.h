// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/tensor/attention_library.h"

// The library's cuDNN attention on GPUs from compute capability 9 on: bf16 and fp16, segments of
// one length side by side. On such GPUs it is faster than FlashAttention-2; its backward sums in an
// order of its own, so it is not for deterministic runs. Statistics are fp32.
namespace pentatron::tensor {

struct CudnnArguments {
  std::int64_t segments = 1;  // rows are [segments * length]
  std::int64_t q_len = 0;
  std::int64_t k_len = 0;
  double scale = 1.0;
  bool causal = true;  // with q_len == k_len only
};

// Whether these kernels take q [t, n, d] on this machine, in this process's mode.
[[nodiscard]] bool cudnn_attention_takes(const Tensor& q_tnd);
// q [t, n, d], k and v [s, g, d], n divisible by g; channels side by side.
[[nodiscard]] FlashOutput cudnn_attention_forward(const Tensor& q_tnd, const Tensor& k_tgd,
                                                  const Tensor& v_tgd,
                                                  const CudnnArguments& arguments);
// Of a forward, or of any output with its log-sum-exps in place of the forward's.
[[nodiscard]] FlashGradients cudnn_attention_backward(const Tensor& dout_tnd, const Tensor& q_tnd,
                                                      const Tensor& k_tgd, const Tensor& v_tgd,
                                                      const FlashOutput& output,
                                                      const CudnnArguments& arguments);

}  // namespace pentatron::tensor
