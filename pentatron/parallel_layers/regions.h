// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "pentatron/parallel_layers/leaf_context.h"

// Borders between replicated, row-shared (sequence-parallel) and split activations over the
// tensor-parallel group, each with its conjugate in backward (Megatron-LM, arXiv 1909.08053 fig. 3
// and 2205.05198 fig. 5). On one rank all are the identity. Tensors are [tokens or local rows,
// channels]. All are collective: a backward without a gradient is a kInternal error, since the
// other ranks would wait for it.
namespace pentatron::parallel_layers {

// Forward: x. Backward: sum of the ranks' gradients.
[[nodiscard]] Tensor copy_to_tensor(const LeafContext& context, const Tensor& x);
// Forward: sum of the ranks' x. Backward: the gradient as it is.
[[nodiscard]] Tensor reduce_from_tensor(const LeafContext& context, const Tensor& x);
// Forward: the ranks' rows one below the other. Backward: this rank's rows of the summed gradients.
[[nodiscard]] Tensor gather_sequence(const LeafContext& context, const Tensor& x_rows);
// Forward: this rank's rows of the sum. Backward: the ranks' gradient rows one below the other.
[[nodiscard]] Tensor reduce_scatter_sequence(const LeafContext& context, const Tensor& x);
// Forward: this rank's rows of a replicated x. Backward: the ranks' gradient rows one below the
// other.
[[nodiscard]] Tensor scatter_sequence(const LeafContext& context, const Tensor& x);

// The border before a split linear: copy_to_tensor, or gather_sequence under sequence parallelism.
[[nodiscard]] Tensor enter_split(const LeafContext& context, const Tensor& x);
// The border after one: reduce_from_tensor, or reduce_scatter_sequence under sequence parallelism.
[[nodiscard]] Tensor leave_split(const LeafContext& context, const Tensor& x);

// [t, sum(widths)] -> views [t, widths[i] / inner, inner] of x; backward joins the gradients in one
// copy, or in none where they were written side by side. Widths that do not add up or are no
// multiples of `inner`: kInternal.
[[nodiscard]] std::vector<Tensor> split_columns(const Tensor& x_tw,
                                                const std::vector<std::int64_t>& widths,
                                                std::int64_t inner);

}  // namespace pentatron::parallel_layers
