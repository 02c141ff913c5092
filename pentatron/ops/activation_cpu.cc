// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "pentatron/ops/cpu_ops.h"
#include "pentatron/ops/dispatch.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/parallel.h"

namespace pentatron::ops {
namespace {

// Calls body(offset, length) over a flat tensor, a cache-sized piece at a time; `make` builds one
// thread's body.
template <typename F>
void over_flat(std::int64_t numel, F make) {
  const std::int64_t pieces = (numel + kFlatRow - 1) / kFlatRow;
  tensor::parallel_for(0, pieces, 4, [&](std::int64_t from, std::int64_t to) {
    auto body = make();
    for (std::int64_t piece = from; piece < to; ++piece) {
      const std::int64_t at = piece * kFlatRow;
      body(at, std::min(kFlatRow, numel - at));
    }
  });
}

template <typename T, typename C>
void swiglu_rows(const Tensor& x_t2f, const Tensor& y_tf) {
  const std::int64_t f = y_tf.size(-1), num_rows = f == 0 ? 0 : y_tf.numel() / f;
  const T* x = x_t2f.const_data_ptr<T>();
  T* y = y_tf.data_ptr<T>();
  tensor::parallel_for(0, num_rows, row_grain(f), [&](std::int64_t from, std::int64_t to) {
    RowReader<T, C> read_gate, read_up;
    RowWriter<T, C> write;
    for (std::int64_t r = from; r < to; ++r) {
      const T* row = x + r * 2 * f;
      rows::swiglu(read_gate(row, f), read_up(row + f, f), write.begin(y + r * f, f), f);
      write.end(y + r * f, f);
    }
  });
}

template <typename T, typename C>
void swiglu_backward_rows(const Tensor& x_t2f, const Tensor& dy_tf, const Tensor& dx_t2f) {
  const std::int64_t f = dy_tf.size(-1), num_rows = f == 0 ? 0 : dy_tf.numel() / f;
  const T* x = x_t2f.const_data_ptr<T>();
  const T* dy = dy_tf.const_data_ptr<T>();
  T* dx = dx_t2f.data_ptr<T>();
  tensor::parallel_for(0, num_rows, row_grain(f), [&](std::int64_t from, std::int64_t to) {
    RowReader<T, C> read_gate, read_up, read_dy;
    RowWriter<T, C> write_gate, write_up;
    for (std::int64_t r = from; r < to; ++r) {
      const T* row = x + r * 2 * f;
      T* grad = dx + r * 2 * f;
      rows::swiglu_backward(read_gate(row, f), read_up(row + f, f), read_dy(dy + r * f, f),
                            write_gate.begin(grad, f), write_up.begin(grad + f, f), f);
      write_gate.end(grad, f);
      write_up.end(grad + f, f);
    }
  });
}

}  // namespace

Tensor cpu::gelu_forward(const Tensor& x) {
  Tensor y = tensor::empty(x.sizes(), x.scalar_type());
  dispatch_float(x.scalar_type(), [&](auto storage, auto compute) {
    using T = decltype(storage);
    using C = decltype(compute);
    const T* in = x.const_data_ptr<T>();
    T* out = y.data_ptr<T>();
    over_flat(x.numel(), [=] {
      return [=, read = RowReader<T, C>(), write = RowWriter<T, C>()](std::int64_t at,
                                                                      std::int64_t n) mutable {
        rows::gelu(read(in + at, n), write.begin(out + at, n), n);
        write.end(out + at, n);
      };
    });
  });
  return y;
}

Tensor cpu::gelu_backward(const Tensor& x, const Tensor& dy) {
  Tensor dx = tensor::empty(x.sizes(), x.scalar_type());
  dispatch_float(x.scalar_type(), [&](auto storage, auto compute) {
    using T = decltype(storage);
    using C = decltype(compute);
    const T* in = x.const_data_ptr<T>();
    const T* grad = dy.const_data_ptr<T>();
    T* out = dx.data_ptr<T>();
    over_flat(x.numel(), [=] {
      return [=, read_x = RowReader<T, C>(), read_dy = RowReader<T, C>(),
              write = RowWriter<T, C>()](std::int64_t at, std::int64_t n) mutable {
        rows::gelu_backward(read_x(in + at, n), read_dy(grad + at, n), write.begin(out + at, n), n);
        write.end(out + at, n);
      };
    });
  });
  return dx;
}

Tensor cpu::swiglu_forward(const Tensor& x_t2f) {
  Shape shape = tensor::shape_of(x_t2f);
  shape.back() /= 2;
  Tensor y_tf = tensor::empty(shape, x_t2f.scalar_type());
  dispatch_float(x_t2f.scalar_type(), [&](auto storage, auto compute) {
    swiglu_rows<decltype(storage), decltype(compute)>(x_t2f, y_tf);
  });
  return y_tf;
}

Tensor cpu::swiglu_backward(const Tensor& x_t2f, const Tensor& dy_tf) {
  Tensor dx_t2f = tensor::empty(x_t2f.sizes(), x_t2f.scalar_type());
  dispatch_float(x_t2f.scalar_type(), [&](auto storage, auto compute) {
    swiglu_backward_rows<decltype(storage), decltype(compute)>(x_t2f, dy_tf, dx_t2f);
  });
  return dx_t2f;
}

Tensor cpu::dropout(const Tensor& x_th, const DropoutKey& key, const Tensor& sample_ids_t,
                    const Tensor& token_index_t) {
  const Tensor mask_th = tensor::dropout_keep_mask(key.site, key.p, sample_ids_t, token_index_t,
                                                   key.channel_begin, x_th.size(1));
  Tensor y = tensor::empty(x_th.sizes(), x_th.scalar_type());
  dispatch_float(x_th.scalar_type(), [&](auto storage, auto compute) {
    using T = decltype(storage);
    using C = decltype(compute);
    const T* in = x_th.const_data_ptr<T>();
    const auto* mask = mask_th.const_data_ptr<std::uint8_t>();
    T* out = y.data_ptr<T>();
    const C factor = static_cast<C>(1.0 / (1.0 - key.p));
    over_flat(x_th.numel(), [=] {
      return [=, read = RowReader<T, C>(), write = RowWriter<T, C>()](std::int64_t at,
                                                                      std::int64_t n) mutable {
        rows::keep(read(in + at, n), mask + at, factor, write.begin(out + at, n), n);
        write.end(out + at, n);
      };
    });
  });
  return y;
}

}  // namespace pentatron::ops
