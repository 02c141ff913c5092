// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/comm/parallel_context.h"
#include "pentatron/distributed/piece.h"

// What rules need that update matrices as wholes.
namespace pentatron::optimizer {

// The part of a logical tensor that a box is: a view.
[[nodiscard]] Tensor in_box(Tensor whole, const nn::Box& box);

[[nodiscard]] bool is_whole(const nn::ShardPart& part);

// The logical matrix of a part of which this rank holds `local`, of the box's shape: that itself,
// or the sum over the ranks that hold the others, each beside zeros.
[[nodiscard]] Tensor gather_part(comm::ParallelContext& context, const nn::ShardPart& part,
                                 const Tensor& local);

// kInternal unless the piece is all that this rank holds of a matrix; `rule` names who asks.
void check_whole(const distributed::Piece& piece, const char* rule);

}  // namespace pentatron::optimizer
