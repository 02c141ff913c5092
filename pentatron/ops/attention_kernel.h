// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/ops/attention_plan.h"
#include "pentatron/tensor/tensor.h"

// Blocked attention on the CPU: softmax(scale q k^T + mask) v without the matrix of probabilities.
// Forward keeps a running maximum and sum for each query (M. Milakov, N. Gimelshein, "Online
// normalizer calculation for softmax", 2018; T. Dao et al., "FlashAttention", 2022); backward
// computes probabilities again from the log-sum-exp.
namespace pentatron::ops {

// All tensors fp32 or all fp64, last dimension contiguous. out [t, n, d]
// with the d of v, lse [n, t]. Raises the
// options' max_logit.
void blocked_attention_forward(const AttentionPlan& plan, const Tensor& q_tnd, const Tensor& k_tgd,
                               const Tensor& v_tgd, const Tensor& out_tnd, const Tensor& lse_nt);

// Writes dq, dk, dv of all rows of the plan's segments, which share none, and adds to dbias [n, 2 m
// + 1] in fp64 where that is defined, which it is with biases.
void blocked_attention_backward(const AttentionPlan& plan, const Tensor& q_tnd, const Tensor& k_tgd,
                                const Tensor& v_tgd, const Tensor& out_tnd, const Tensor& lse_nt,
                                const Tensor& dout_tnd, const Tensor& dq_tnd, const Tensor& dk_tgd,
                                const Tensor& dv_tgd, const Tensor& dbias_nd = {});

}  // namespace pentatron::ops
