// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "pentatron/ops/projection.h"
#include "pentatron/ops/token_losses.h"
#include "pentatron/parallel_layers/leaf_context.h"

// Linear maps whose weight is split over the tensor-parallel ranks, as one op each: the backward
// knows both the products and the communication, so it saves this rank's rows alone and lets the
// two overlap (Megatron-LM, arXiv 1909.08053 fig. 3 and 2205.05198 fig. 5). Rows: all
// tokens, or under sequence parallelism this rank's share of them. On one rank both are the plain
// ops::Projection. All ranks of the group run the same forward and the same backward; the context
// outlives the graph.
namespace pentatron::parallel_layers {

// W split by output channels: x [local rows, i] -> y [tokens, local o]. Under sequence parallelism
// the rows are gathered, in backward once more while the input's gradient is made; the sum of the
// ranks' input gradients overlaps with the weight's gradient. Postponed work (WeightGradQueue)
// gathers when it runs.
[[nodiscard]] std::unique_ptr<ops::Projection> split_outputs(const LeafContext& context,
                                                             WeightRef& weight_oi,
                                                             WeightRef* bias_o,
                                                             const ops::Scope& scope);

// W split by input channels: x [tokens, local i] -> y [local rows, o], summed over the ranks; the
// bias, whole on every rank, is added once, after the sum. Under sequence parallelism tokens that
// cannot be shared evenly: kConfig.
[[nodiscard]] std::unique_ptr<ops::Projection> split_inputs(const LeafContext& context,
                                                            WeightRef& weight_oi, WeightRef* bias_o,
                                                            const ops::Scope& scope);

// Over the tensor-parallel ranks, which hold the vocabulary in slices; null on one rank.
[[nodiscard]] std::unique_ptr<ops::RowReducer> vocabulary_reducer(const LeafContext& context);

}  // namespace pentatron::parallel_layers
