// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/base/activation_kind.h"
#include "pentatron/ops/scope.h"
#include "pentatron/tensor/random.h"
#include "pentatron/tensor/tensor.h"

// Shapes that do not fit are kInternal errors.
namespace pentatron::ops {

using pentatron::Activation;
using pentatron::Gate;
using pentatron::GateKind;

// Elementwise, any shape:
//   kGeluTanh     0.5 x (1 + tanh(0.79788456 (x + 0.044715 x^3))), as Megatron's fused bias-GELU
//   kGeluErf      0.5 x (1 + erf(x / sqrt 2))
//   kSquaredRelu  max(x, 0)^2
[[nodiscard]] Tensor activation(Activation kind, const Tensor& x, const Scope& scope = {});
[[nodiscard]] inline Tensor gelu_tanh(const Tensor& x, const Scope& scope = {}) {
  return activation(Activation::kGeluTanh, x, scope);
}
// f(gate) * (up + offset) for x = [gate | up] along the last dimension ([t, 2f] -> [t, f]), with
// f(x) = x sigmoid(x) (kSilu), x sigmoid(1.702 x) (kQuickGelu) or GELU's tanh form (kGeluTanh).
// With a clamp c the gate is at most c and up within [-c, c], and no gradient goes through what was
// cut off.
[[nodiscard]] Tensor gated(const Gate& gate, const Tensor& x_t2f, const Scope& scope = {});
[[nodiscard]] inline Tensor swiglu(const Tensor& x_t2f, const Scope& scope = {}) {
  return gated({}, x_t2f, scope);
}
// x * keep / (1 - p), mask recomputed in backward from the key (nothing saved). Ids and indices:
// int64 [t]. See tensor::dropout_keep_mask. p outside [0, 1): kConfig.
[[nodiscard]] Tensor dropout(const Tensor& x_th, double p, RngSite site, const Tensor& sample_ids_t,
                             const Tensor& token_index_t, std::int64_t channel_begin);

}  // namespace pentatron::ops
