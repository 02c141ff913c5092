// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "pentatron/base/activation_kind.h"
#include "pentatron/ops/projection.h"

namespace pentatron::ops {

// y_to = x_ti @ weight_oi^T (+ bias_o) by the scope's recipe: in the compute dtype with products
// accumulated in fp32 (fp64 for fp64), or in fp8. x and y in one dtype. The weight gradient dy^T @
// x goes straight into the slot (one product with accumulate, no weight-sized temporary when dtypes
// allow). bias may be null. Shapes that do not fit: kInternal; sizes that are no multiples of 16
// with fp8: kUnsupported.
[[nodiscard]] Tensor linear(const Tensor& x_ti, WeightRef& weight_oi, WeightRef* bias_o,
                            const Scope& scope);
// The same for any projection.
[[nodiscard]] Tensor linear(const Tensor& x, std::unique_ptr<Projection> projection);
// activation(kind, linear(x, projection), scope) with its bits, as one op: on GPUs the gradient of
// the bias is summed in the pass that makes the activation's.
[[nodiscard]] Tensor linear_activation(const Tensor& x, std::unique_ptr<Projection> projection,
                                       Activation kind, const Scope& scope);

}  // namespace pentatron::ops
