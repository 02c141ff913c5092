// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/tensor/tensor.h"

// The library's FlashAttention-2 on GPUs (T. Dao, 2023), bf16 and fp16. Memory is linear in
// tokens; statistics are fp32. Forward gives equal bits for equal inputs; backward does so in the
// library's deterministic mode (set_up_process) only.
namespace pentatron::tensor {

// The library's kernels read elements in groups of this many, 16 bytes, of any 16-bit dtype.
constexpr std::int64_t kAttentionAlignment = 8;
// [t, n, d] itself where its rows and heads start at such places, else a copy whose do.
[[nodiscard]] Tensor aligned_rows(const Tensor& x_tnd);

struct FlashArguments {
  // int32 [segments + 1] on the device: rows where the segments of queries and of keys begin.
  // Undefined: one segment. A causal mask lets the last query of a segment see its last key.
  Tensor q_boundaries;
  Tensor k_boundaries;
  std::int64_t max_q_len = 0;  // no segment is longer
  std::int64_t max_k_len = 0;
  double scale = 1.0;
  bool causal = true;
  std::int64_t window = -1;  // keys before its own place that a query sees at most; -1: all
};

struct FlashOutput {
  Tensor out_tnd;
  Tensor lse_nt;     // fp32
  Tensor rng_state;  // of no meaning without dropout; backward asks for them
  Tensor unused;
};

struct FlashGradients {
  Tensor dq_tnd, dk_tgd, dv_tgd;
};

// Whether these kernels take heads of so many channels on q's device in its dtype: bf16 or fp16, a
// multiple of 8 up to 256.
[[nodiscard]] bool flash_attention_takes(const Tensor& q_tnd, std::int64_t channels);
// q [t, n, d], k and v [s, g, d], n divisible by g; channels side by side, rows of any stride.
[[nodiscard]] FlashOutput flash_attention_forward(const Tensor& q_tnd, const Tensor& k_tgd,
                                                  const Tensor& v_tgd,
                                                  const FlashArguments& arguments);
// Of a forward with boundaries.
[[nodiscard]] FlashGradients flash_attention_backward(const Tensor& dout_tnd, const Tensor& q_tnd,
                                                      const Tensor& k_tgd, const Tensor& v_tgd,
                                                      const FlashOutput& output,
                                                      const FlashArguments& arguments);

}  // namespace pentatron::tensor
