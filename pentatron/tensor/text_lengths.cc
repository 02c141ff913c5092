// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tensor/text_lengths.h"

#include <ATen/ops/bucketize.h>

#include <tuple>

#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/sequence_cut.h"

namespace pentatron {
namespace {

// No position comes near it: the rows of later segments are above those of earlier ones.
constexpr std::int64_t kSegmentStep = std::int64_t{1} << 32;

Tensor of_whole(const SequenceLayout& layout) {
  const Tensor& positions_t = layout.positions();
  if (positions_t.numel() == 0) return positions_t;
  const Tensor& on_device = layout.attention()->q_boundaries;
  const Tensor boundaries = on_device.defined() ? on_device.to(DType::Long)
                                                : tensor::from_vector(layout.rows().boundaries);
  const Tensor rows_t = tensor::arange(positions_t.numel(), DType::Long, positions_t.device());
  // The first boundary behind each row ends its segment; segments without rows are passed over.
  const Tensor end_t = at::bucketize(rows_t, boundaries, /*out_int32=*/false, /*right=*/true);
  const Tensor base_t = end_t.mul(kSegmentStep);
  // The running maximum at the segment's last row is the segment's own.
  const Tensor running_t = std::get<0>(base_t.add(positions_t).cummax(0));
  const Tensor last_t = boundaries.index_select(0, end_t).sub(1);
  return running_t.index_select(0, last_t).sub(base_t).add(1);
}

}  // namespace

Tensor text_lengths(const SequenceLayout& layout) {
  const tensor::NoGrad no_grad;
  if (layout.cut() == nullptr) return of_whole(layout);
  return of_whole(layout.cut()->whole.layout).index_select(0, layout.cut()->rows);
}

}  // namespace pentatron
