// SPDX-License-Identifier: Apache-2.0
#include "pentatron/optimizer/rules/whole_matrix.h"

#include "pentatron/base/error.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::optimizer {

Tensor in_box(Tensor whole, const nn::Box& box) {
  for (std::size_t dim = 0; dim < box.size.size(); ++dim) {
    whole = whole.narrow(static_cast<std::int64_t>(dim), box.offset[dim], box.size[dim]);
  }
  return whole;
}

bool is_whole(const nn::ShardPart& part) { return part.box.size == part.logical_shape; }

Tensor gather_part(comm::ParallelContext& context, const nn::ShardPart& part, const Tensor& local) {
  if (is_whole(part)) return local;
  Tensor whole = tensor::zeros(part.logical_shape, local.scalar_type(), local.device());
  in_box(whole, part.box).copy_(local);
  comm::all_reduce(context.group(part.split_axes), whole);
  return whole;
}

void check_whole(const distributed::Piece& piece, const char* rule) {
  const nn::ShardPart& part = *piece.part;
  PENTATRON_CHECK(piece.whole() && part.logical_shape.size() == 2, kInternal,
                  "{} needs the whole matrix {}, not {} elements from {}", rule, part.name,
                  piece.length(), piece.box_begin);
}

}  // namespace pentatron::optimizer
