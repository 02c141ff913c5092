// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "pentatron/ops/cpu_ops.h"
#include "pentatron/ops/dispatch.h"
#include "pentatron/ops/row_partials.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/parallel.h"

namespace pentatron::ops {
namespace {

template <typename T, typename C>
void sum_rows(const Tensor& dy_to, const Tensor& partials_po) {
  const std::int64_t num_rows = dy_to.size(0), o = dy_to.size(1);
  const std::int64_t chunk = rows_per_partial(num_rows);
  const T* dy = dy_to.const_data_ptr<T>();
  C* partials = partials_po.data_ptr<C>();
  tensor::parallel_for(0, partials_po.size(0), 1, [&](std::int64_t from, std::int64_t to) {
    RowReader<T, C> read;
    for (std::int64_t part = from; part < to; ++part) {
      C* sum = partials + part * o;
      std::fill_n(sum, o, C(0));
      const std::int64_t end = std::min(num_rows, (part + 1) * chunk);
      for (std::int64_t r = part * chunk; r < end; ++r) rows::add(read(dy + r * o, o), sum, o);
    }
  });
}

}  // namespace

// In the slot's own dtype; zero rows give zeros.
void cpu::column_sums(const Tensor& dy_to, const GradSlot& slot) {
  const DType wide = slot.buffer.scalar_type() == DType::Double ? DType::Double : DType::Float;
  const DType computed = compute_dtype(dy_to.scalar_type(), wide);
  const std::int64_t chunk = rows_per_partial(dy_to.size(0));
  const Tensor partials_po =
      tensor::empty({(dy_to.size(0) + chunk - 1) / chunk, dy_to.size(1)}, computed);
  dispatch_float(dy_to.scalar_type(), wide, [&](auto storage, auto compute) {
    sum_rows<decltype(storage), decltype(compute)>(dy_to, partials_po);
  });
  const Tensor sum_o = sum_of_partials(partials_po);
  write_slot(slot, sum_o);
}

}  // namespace pentatron::ops
