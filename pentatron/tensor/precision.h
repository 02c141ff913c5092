// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "pentatron/tensor/tensor.h"

namespace pentatron {

// Every dtype that the program chooses stands here; no dtype literal elsewhere outside tests.
struct PrecisionPolicy {
  DType parameter;       // stored weight that forward reads
  DType compute;         // activations
  DType main_parameter;  // optimizer's copy
  DType main_grad;       // gradient buffers
  DType reduction;       // collectives over gradients
  DType statistics;      // norms, softmax sums, log-sum-exp
  DType logits;
  DType loss;
  DType state;  // optimizer moments
};

// Not a choice: sums on the host, and scalars that kernels read from device memory, are exact
// enough for every policy.
inline constexpr DType kAccumulationDType = DType::Double;

// "fp32", "bf16" (bf16 weights and activations, fp32 everything else), "fp16" (the same with half
// precision; its gradients need loss scaling), "fp64" (tests), "bf16_state" (all-bf16 state).
// Another name: kConfig.
[[nodiscard]] PrecisionPolicy precision_policy(std::string_view name);

}  // namespace pentatron
