// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/tensor/weight_ref.h"

namespace pentatron::ops {

// Rows of a table slice: out[t] = weight[ids[t] - row_begin], zero where the id is outside
// [row_begin, row_begin + rows). The gradient is summed in the order of t (deterministic), straight
// into the slot. `rows` excludes padding rows. ids int64 [t]; out [t, h] in the weight's compute
// dtype. Shapes that do not fit: kInternal.
[[nodiscard]] Tensor embedding(const Tensor& ids_t, WeightRef& weight_vh, std::int64_t row_begin,
                               std::int64_t rows);

}  // namespace pentatron::ops
