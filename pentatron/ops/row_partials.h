// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "pentatron/ops/rows.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/views.h"

// Sums over many rows on CPUs: rows are summed in partials, so that threads can share the work and
// rounding errors stay small, and the partials one after another. The cut is a function of the
// number of rows alone: results do not depend on threads.
namespace pentatron::ops {

[[nodiscard]] inline std::int64_t rows_per_partial(std::int64_t num_rows) {
  return std::max<std::int64_t>(64, (num_rows + 63) / 64);
}

// The sum over the first dimension of a contiguous [partials, n] (fp32 or fp64), which is used up;
// zeros without partials.
[[nodiscard]] inline Tensor sum_of_partials(const Tensor& partials_pn) {
  const std::int64_t count = partials_pn.size(0), n = partials_pn.size(1);
  if (count == 0) return tensor::zeros({n}, partials_pn.scalar_type());
  const auto add_rows = [&](auto* first) {
    for (std::int64_t p = 1; p < count; ++p) rows::add(first + p * n, first, n);
  };
  if (partials_pn.scalar_type() == DType::Double) {
    add_rows(partials_pn.data_ptr<double>());
  } else {
    add_rows(partials_pn.data_ptr<float>());
  }
  return tensor::selected(partials_pn, 0);
}

}  // namespace pentatron::ops
