// SPDX-License-Identifier: Apache-2.0
#include "pentatron/kernels/embedding.h"

#include "pentatron/base/error.h"
#include "pentatron/ops/cuda_ops.h"
#include "pentatron/tensor/kernel_launch.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::ops {

using tensor::check_launch;
using tensor::read;
using tensor::write;

Tensor cuda::embedding_forward(const Tensor& ids_t, const Tensor& table_vh, std::int64_t row_begin,
                               std::int64_t rows) {
  const std::int64_t h = table_vh.size(1);
  Tensor out_th = tensor::empty({ids_t.size(0), h}, table_vh.scalar_type(), table_vh.device());
  check_launch(kernels::gather_rows(ids_t.const_data_ptr<std::int64_t>(), ids_t.size(0),
                                    read(table_vh), h * tensor::item_bytes(table_vh.scalar_type()),
                                    row_begin, rows, write(out_th), tensor::stream_of(table_vh)),
               "gather_rows");
  return out_th;
}

// Equal ids stand together after a stable sort, so each row of the slot is summed by one block in
// the order of t.
void cuda::embedding_backward(const Tensor& ids_t, const Tensor& dy_th, std::int64_t row_begin,
                              std::int64_t rows, const GradSlot& slot) {
  Tensor buffer = slot.buffer;
  PENTATRON_CHECK(buffer.is_contiguous(), kInternal, "embedding gradient: the slot {} has gaps",
                  tensor::describe(buffer));
  if (!slot.accumulate) buffer.zero_();
  if (!dy_th.defined() || ids_t.size(0) == 0) return;
  const auto [sorted_ids, order] = ids_t.sort(/*stable=*/true, /*dim=*/0, /*descending=*/false);
  check_launch(kernels::scatter_rows(tensor::kernel_type(dy_th.scalar_type()),
                                     {.sorted_ids = sorted_ids.const_data_ptr<std::int64_t>(),
                                      .order = order.const_data_ptr<std::int64_t>(),
                                      .tokens = ids_t.size(0),
                                      .columns = dy_th.size(1),
                                      .row_begin = row_begin,
                                      .rows = rows},
                                     read(dy_th),
                                     {.data = write(buffer),
                                      .type = tensor::kernel_type(buffer.scalar_type()),
                                      .accumulate = true},
                                     tensor::stream_of(dy_th)),
               "scatter_rows");
}

}  // namespace pentatron::ops
