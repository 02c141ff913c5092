// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/ops/scope.h"

namespace pentatron::ops {

// x * sigmoid(gate), computed in the computing dtype and rounded once; any equal shapes and
// strides, on any device. Other shapes: kInternal.
[[nodiscard]] Tensor sigmoid_gate(const Tensor& x, const Tensor& gate, const Scope& scope = {});

}  // namespace pentatron::ops
