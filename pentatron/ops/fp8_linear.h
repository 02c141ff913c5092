// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/ops/linear.h"
#include "pentatron/tensor/fp8.h"

namespace pentatron::ops {

// y_to = x_ti @ weight_oi^T with both operands in fp8 (e4m3, one scale a tensor), sums in fp32, y
// and the gradient of x in x's dtype (bf16). The weight comes as kFp8RowWise for this product and
// as kFp8ColumnWise for dx; the output's gradient is quantised to `gradient` for dx and stays in
// bf16 for the weight gradient, which goes into the slot as that of linear() does. Sizes i and o
// are multiples of 16, else kUnsupported; shapes that do not fit: kInternal.
[[nodiscard]] Tensor fp8_linear(const Tensor& x_ti, WeightRef& weight_oi,
                                const LinearOptions& options,
                                tensor::Fp8Format gradient = tensor::Fp8Format::kE5M2);

}  // namespace pentatron::ops
