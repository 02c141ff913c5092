// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <type_traits>

#include "pentatron/base/error.h"
#include "pentatron/ops/cpu_ops.h"
#include "pentatron/ops/dispatch.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/parallel.h"

namespace pentatron::ops {
namespace {

// Adds dy rows to the table in the order of t; threads share channels, never rows, so the order
// holds for each element.
template <typename T, typename C>
void scatter_rows(const Tensor& ids_t, const Tensor& dy_th, std::int64_t row_begin,
                  std::int64_t rows, const Tensor& table_vh) {
  const std::int64_t h = dy_th.size(1), num_tokens = ids_t.size(0);
  const auto* ids = ids_t.const_data_ptr<std::int64_t>();
  const T* dy = dy_th.const_data_ptr<T>();
  C* table = table_vh.data_ptr<C>();
  tensor::parallel_for(0, h, 256, [&](std::int64_t from, std::int64_t to) {
    RowReader<T, C> read;
    for (std::int64_t t = 0; t < num_tokens; ++t) {
      const std::int64_t row = ids[t] - row_begin;
      if (row < 0 || row >= rows) continue;
      rows::add(read(dy + t * h + from, to - from), table + row * h + from, to - from);
    }
  });
}

template <typename C>
DType dtype_of() {
  return std::is_same_v<C, double> ? DType::Double : DType::Float;
}

}  // namespace

Tensor cpu::embedding_forward(const Tensor& ids_t, const Tensor& table_vh, std::int64_t row_begin,
                              std::int64_t rows) {
  const std::int64_t h = table_vh.size(1);
  Tensor out = tensor::empty({ids_t.size(0), h}, table_vh.scalar_type());
  const auto* ids = ids_t.const_data_ptr<std::int64_t>();
  const auto row_bytes = static_cast<std::size_t>(h * tensor::item_bytes(out.scalar_type()));
  const auto* table = static_cast<const char*>(table_vh.const_data_ptr());
  auto* y = static_cast<char*>(out.data_ptr());
  tensor::parallel_for(0, ids_t.size(0), row_grain(h), [&](std::int64_t from, std::int64_t to) {
    for (std::int64_t t = from; t < to; ++t) {
      const std::int64_t row = ids[t] - row_begin;
      char* place = y + static_cast<std::size_t>(t) * row_bytes;
      if (row < 0 || row >= rows) {
        std::memset(place, 0, row_bytes);
      } else {
        std::memcpy(place, table + static_cast<std::size_t>(row) * row_bytes, row_bytes);
      }
    }
  });
  return out;
}

void cpu::embedding_backward(const Tensor& ids_t, const Tensor& dy_th, std::int64_t row_begin,
                             std::int64_t rows, const GradSlot& slot) {
  const DType dtype = slot.buffer.scalar_type();
  const bool direct =
      slot.buffer.is_contiguous() && (dtype == DType::Float || dtype == DType::Double);
  // A low-precision slot would lose small terms one by one: sum in fp32 and round once.
  const Tensor table = direct ? slot.buffer : tensor::zeros(slot.buffer.sizes(), DType::Float);
  if (!slot.accumulate) slot.buffer.zero_();
  if (dy_th.defined()) {
    dispatch_float(dy_th.scalar_type(), table.scalar_type(), [&](auto storage, auto compute) {
      using T = decltype(storage);
      using C = decltype(compute);
      if (compute_dtype(DType::Float, table.scalar_type()) == dtype_of<C>()) {
        scatter_rows<T, C>(ids_t, dy_th, row_begin, rows, table);
      } else {
        // fp64 activations over an fp32 slot.
        scatter_rows<float, float>(ids_t, tensor::cast(dy_th, DType::Float), row_begin, rows,
                                   table);
      }
    });
  }
  if (!direct) slot.buffer.add_(table);
}

}  // namespace pentatron::ops
