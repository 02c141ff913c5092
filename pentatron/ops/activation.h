// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/ops/scope.h"
#include "pentatron/tensor/random.h"
#include "pentatron/tensor/tensor.h"

// Shapes that do not fit are kInternal errors.
namespace pentatron::ops {

// 0.5 x (1 + tanh(0.79788456 (x + 0.044715 x^3))), the tanh form that Megatron's fused bias-GELU
// has. Any shape.
[[nodiscard]] Tensor gelu_tanh(const Tensor& x, const Scope& scope = {});
// silu(gate) * up for x = [gate | up] along the last dimension ([t, 2f] -> [t, f]).
[[nodiscard]] Tensor swiglu(const Tensor& x_t2f, const Scope& scope = {});
// x * keep / (1 - p), mask recomputed in backward from the key (nothing saved). Ids and indices:
// int64 [t]. See tensor::dropout_keep_mask. p outside [0, 1): kConfig.
[[nodiscard]] Tensor dropout(const Tensor& x_th, double p, RngSite site, const Tensor& sample_ids_t,
                             const Tensor& token_index_t, std::int64_t channel_begin);

}  // namespace pentatron::ops
