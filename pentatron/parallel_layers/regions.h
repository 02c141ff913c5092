// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "pentatron/parallel_layers/leaf_context.h"

// Borders of what is no linear (split_linear.h) between split and replicated or row-shared
// (sequence-parallel) activations over the tensor-parallel group, with their conjugates in
// backward. On one rank both sums are the identity. Tensors are [tokens or local rows, channels].
// Sums are collective: a backward without a gradient is a kInternal error, since the other ranks
// would wait for it.
namespace pentatron::parallel_layers {

// Forward: sum of the ranks' x. Backward: the gradient as it is.
[[nodiscard]] Tensor reduce_from_tensor(const LeafContext& context, const Tensor& x);
// Forward: this rank's rows of the sum. Backward: the ranks' gradient rows one below the other.
[[nodiscard]] Tensor reduce_scatter_sequence(const LeafContext& context, const Tensor& x);
// This rank's rows (all of them without sequence parallelism) on the way to what is split by
// outputs. Forward: the ranks' rows one below the other. Backward: the sum of the ranks' gradients,
// or this rank's rows of it.
[[nodiscard]] Tensor enter_split(const LeafContext& context, const Tensor& x);
// The first, or the second under sequence parallelism.
[[nodiscard]] Tensor leave_split(const LeafContext& context, const Tensor& x);

// Values of this rank's rows, [local rows] (all of them without sequence parallelism). Forward: the
// ranks' values one behind the other. Backward: this rank's part of the gradient, which is that of
// something that all ranks make of the gathered values alike.
[[nodiscard]] Tensor gather_row_values(const LeafContext& context, const Tensor& values_r);

// [t, sum(widths)] -> views [t, widths[i] / inner, inner] of x; backward joins the gradients in one
// copy, or in none where they were written side by side. Widths that do not add up or are no
// multiples of `inner`: kInternal.
[[nodiscard]] std::vector<Tensor> split_columns(const Tensor& x_tw,
                                                const std::vector<std::int64_t>& widths,
                                                std::int64_t inner);

}  // namespace pentatron::parallel_layers
