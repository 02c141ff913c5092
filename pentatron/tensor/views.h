// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/tensor/tensor.h"

// Views for op bodies: the same memory, no copy, outside any graph whatever x is. They skip the
// library's dispatcher, which costs more than the rows of a small model.
namespace pentatron::tensor {

// x_mn as [n, m]. Not two dimensions: kInternal.
[[nodiscard]] Tensor transposed(const Tensor& x_mn);

// Elements [begin, begin + length) of dimension `dim` (0 is the first), all of the others. Outside
// of x: kInternal.
[[nodiscard]] Tensor narrowed(const Tensor& x, std::int64_t dim, std::int64_t begin,
                              std::int64_t length);

// x_mn as [m, n / inner, inner]. Where that is no whole number: kInternal.
[[nodiscard]] Tensor split_last(const Tensor& x_mn, std::int64_t inner);

// x[index] of the first dimension. Outside of x: kInternal.
[[nodiscard]] Tensor selected(const Tensor& x, std::int64_t index);

}  // namespace pentatron::tensor
