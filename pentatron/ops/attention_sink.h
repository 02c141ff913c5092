// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/ops/attention_plan.h"
#include "pentatron/tensor/weight_ref.h"

// The sink of an attention (AttentionOptions::sink_n) on top of attention without one, on any
// device: with s = exp(sink) beside the sum Z of a query's exponentials, its output shrinks by
// Z / (Z + s) and its log-sum-exp becomes log(Z + s). From these two the backward of attention
// without a sink gives the exact gradients of q, k and v.
namespace pentatron::ops {

// A weight, [n] as sinks, in the graph: in the computing dtype, in which its gradient comes too.
[[nodiscard]] Tensor sink_logits(WeightRef& weight_n, DType statistics);

// `output`, in the dtype of its log-sum-exp, of all keys becomes that with the sink.
void add_sink(AttentionOutput& output, const Tensor& sink_n);

// The sink's gradient [n] from an output with the sink, in the dtype of sink_n.
[[nodiscard]] Tensor sink_gradient(const AttentionOutput& output, const Tensor& sink_n,
                                   const Tensor& dout_tnd);

}  // namespace pentatron::ops
