// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/ops/scope.h"
#include "pentatron/tensor/precision.h"
#include "pentatron/tensor/weight_ref.h"

namespace pentatron::ops {

// A zero-centred weight is used as 1 + weight.
//
// y = (x - mean) / sqrt(var + eps) * weight + bias over the last dimension, statistics in
// policy.statistics dtype. x of any shape, y like it; fp64 statistics of narrower tensors on a
// GPU: kUnsupported; shapes that do not fit: kInternal.
[[nodiscard]] Tensor layer_norm(const Tensor& x_th, WeightRef& weight_h, WeightRef& bias_h,
                                double eps, DType statistics, const Scope& scope = {},
                                bool zero_centred = false);
// y = x / sqrt(mean(x^2) + eps) * weight.
[[nodiscard]] Tensor rms_norm(const Tensor& x_th, WeightRef& weight_h, double eps, DType statistics,
                              const Scope& scope = {}, bool zero_centred = false);

// A residual stream with what is added to it, and that normalised.
struct AddedNorm {
  Tensor sum_th;   // residual + delta, rounded to their dtype
  Tensor norm_th;  // the norm of the sum
};
// The two above of residual + delta, in one pass over memory each way; the gradient that comes to
// the sum is added to the norm's before that is rounded. Both of one shape and dtype (else
// kInternal); the sum has the bits of a plain addition, and so has the norm. Without a delta the
// sum is the residual: whoever has added already gets gradients of the same bits.
[[nodiscard]] AddedNorm add_layer_norm(const Tensor& residual_th, const Tensor& delta_th,
                                       WeightRef& weight_h, WeightRef& bias_h, double eps,
                                       DType statistics, const Scope& scope = {},
                                       bool zero_centred = false);
[[nodiscard]] AddedNorm add_rms_norm(const Tensor& residual_th, const Tensor& delta_th,
                                     WeightRef& weight_h, double eps, DType statistics,
                                     const Scope& scope = {}, bool zero_centred = false);

// y = x / sqrt(mean(x^2) + eps), without a weight.
[[nodiscard]] Tensor l2_norm(const Tensor& x_th, double eps, DType statistics,
                             const Scope& scope = {});

}  // namespace pentatron::ops
