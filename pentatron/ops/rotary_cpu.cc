// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "pentatron/base/error.h"
#include "pentatron/ops/cpu_ops.h"
#include "pentatron/ops/dispatch.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/parallel.h"

namespace pentatron::ops {
namespace {

template <typename C>
void rotate_neighbours(const C* in, const C* cos, const C* sin, C direction, C* out,
                       std::int64_t half) {
  for (std::int64_t i = 0; i < half; ++i) {
    const C p = in[2 * i], q = in[2 * i + 1], sine = sin[i] * direction;
    out[2 * i] = p * cos[i] - q * sine;
    out[2 * i + 1] = q * cos[i] + p * sine;
  }
}

template <typename T, typename C>
void rotate_rows(const Tensor& x_tnd, const Tensor& cos_pr, const Tensor& sin_pr,
                 const Tensor& positions_t, double direction, bool interleaved,
                 const Tensor& y_tnd) {
  const std::int64_t heads = x_tnd.size(1), d = x_tnd.size(2), half = cos_pr.size(1);
  const std::int64_t token_stride = x_tnd.stride(0), head_stride = x_tnd.stride(1);
  const T* x = x_tnd.const_data_ptr<T>();
  T* y = y_tnd.data_ptr<T>();
  const C* cos = cos_pr.const_data_ptr<C>();
  const C* sin = sin_pr.const_data_ptr<C>();
  const auto* positions = positions_t.const_data_ptr<std::int64_t>();
  tensor::parallel_for(
      0, x_tnd.size(0), row_grain(heads * d), [&](std::int64_t from, std::int64_t to) {
        RowReader<T, C> read;
        RowWriter<T, C> write;
        for (std::int64_t t = from; t < to; ++t) {
          const C* c = cos + positions[t] * half;
          const C* s = sin + positions[t] * half;
          for (std::int64_t n = 0; n < heads; ++n) {
            const C* in = read(x + t * token_stride + n * head_stride, d);
            T* place = y + (t * heads + n) * d;
            C* out = write.begin(place, d);
            if (interleaved) {
              rotate_neighbours(in, c, s, static_cast<C>(direction), out, half);
            } else {
              rows::rotate(in, in + half, c, s, static_cast<C>(direction), out, out + half, half);
            }
            std::copy(in + 2 * half, in + d, out + 2 * half);
            write.end(place, d);
          }
        }
      });
}

}  // namespace

Tensor cpu::rotate(const Tensor& x_tnd, const Tensor& cos_pr, const Tensor& sin_pr,
                   const Tensor& positions_t, double direction, bool interleaved) {
  Tensor y_tnd = tensor::empty(x_tnd.sizes(), x_tnd.scalar_type());
  const DType computed = compute_dtype(x_tnd.scalar_type());
  const Tensor cos = tensor::cast(cos_pr, computed).contiguous(),
               sin = tensor::cast(sin_pr, computed).contiguous();
  dispatch_float(x_tnd.scalar_type(), [&](auto storage, auto compute) {
    rotate_rows<decltype(storage), decltype(compute)>(x_tnd, cos, sin, positions_t, direction,
                                                      interleaved, y_tnd);
  });
  return y_tnd;
}

}  // namespace pentatron::ops
