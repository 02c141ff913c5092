// SPDX-License-Identifier: Apache-2.0
#include "pentatron/ops/activation.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/ops/backward.h"
#include "pentatron/ops/dispatch.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/parallel.h"
#include "pentatron/tensor/saved.h"

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

class GeluBackward final : public Backward {
 public:
  explicit GeluBackward(const Tensor& x) : x_(x) {}
  std::vector<Tensor> apply(std::vector<Tensor> output_grads) override {
    if (!output_grads[0].defined()) return {Tensor()};
    const Tensor dy = output_grads[0].contiguous(), x = x_.get().contiguous();
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
          rows::gelu_backward(read_x(in + at, n), read_dy(grad + at, n), write.begin(out + at, n),
                              n);
          write.end(out + at, n);
        };
      });
    });
    return {dx};
  }
  void release() override { x_.release(); }
  std::string_view name() const override { return "Gelu"; }

 private:
  Saved x_;
};

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

class SwigluBackward final : public Backward {
 public:
  explicit SwigluBackward(const Tensor& x_t2f) : x_(x_t2f) {}
  std::vector<Tensor> apply(std::vector<Tensor> output_grads) override {
    if (!output_grads[0].defined()) return {Tensor()};
    const Tensor dy = output_grads[0].contiguous(), x = x_.get().contiguous();
    Tensor dx = tensor::empty(x.sizes(), x.scalar_type());
    dispatch_float(x.scalar_type(), [&](auto storage, auto compute) {
      swiglu_backward_rows<decltype(storage), decltype(compute)>(x, dy, dx);
    });
    return {dx};
  }
  void release() override { x_.release(); }
  std::string_view name() const override { return "Swiglu"; }

 private:
  Saved x_;
};

struct DropoutKey {
  double p;
  RngSite site;
  std::int64_t channel_begin;
};

// Dropout and its gradient are the same function of the same key.
Tensor dropped(const Tensor& x_th, const DropoutKey& key, const Tensor& sample_ids_t,
               const Tensor& token_index_t) {
  const tensor::NoGrad no_grad;
  const Tensor x = x_th.contiguous();
  const std::int64_t h = x.size(1);
  const Tensor mask_th =
      tensor::dropout_keep_mask(key.site, key.p, sample_ids_t, token_index_t, key.channel_begin, h);
  Tensor y = tensor::empty(x.sizes(), x.scalar_type());
  dispatch_float(x.scalar_type(), [&](auto storage, auto compute) {
    using T = decltype(storage);
    using C = decltype(compute);
    const T* in = x.const_data_ptr<T>();
    const auto* mask = mask_th.const_data_ptr<std::uint8_t>();
    T* out = y.data_ptr<T>();
    const C factor = static_cast<C>(1.0 / (1.0 - key.p));
    over_flat(x.numel(), [=] {
      return [=, read = RowReader<T, C>(), write = RowWriter<T, C>()](std::int64_t at,
                                                                      std::int64_t n) mutable {
        rows::keep(read(in + at, n), mask + at, factor, write.begin(out + at, n), n);
        write.end(out + at, n);
      };
    });
  });
  return y;
}

class DropoutBackward final : public Backward {
 public:
  DropoutBackward(const DropoutKey& key, const Tensor& sample_ids_t, const Tensor& token_index_t)
      : key_(key), sample_ids_(sample_ids_t), token_index_(token_index_t) {}
  std::vector<Tensor> apply(std::vector<Tensor> output_grads) override {
    if (!output_grads[0].defined()) return {Tensor()};
    return {dropped(output_grads[0], key_, sample_ids_.get(), token_index_.get())};
  }
  void release() override {
    sample_ids_.release();
    token_index_.release();
  }
  std::string_view name() const override { return "Dropout"; }

 private:
  DropoutKey key_;
  Saved sample_ids_;
  Saved token_index_;
};

}  // namespace

Tensor gelu_tanh(const Tensor& x) {
  Tensor y;
  {
    const tensor::NoGrad no_grad;
    const Tensor input = x.contiguous();
    y = tensor::empty(input.sizes(), input.scalar_type());
    dispatch_float(input.scalar_type(), [&](auto storage, auto compute) {
      using T = decltype(storage);
      using C = decltype(compute);
      const T* in = input.const_data_ptr<T>();
      T* out = y.data_ptr<T>();
      over_flat(input.numel(), [=] {
        return [=, read = RowReader<T, C>(), write = RowWriter<T, C>()](std::int64_t at,
                                                                        std::int64_t n) mutable {
          rows::gelu(read(in + at, n), write.begin(out + at, n), n);
          write.end(out + at, n);
        };
      });
    });
  }
  if (!needs_backward({x})) return y;
  return attach(std::move(y), {x}, std::make_unique<GeluBackward>(x));
}

Tensor swiglu(const Tensor& x_t2f) {
  PENTATRON_CHECK(x_t2f.dim() >= 1 && x_t2f.size(-1) % 2 == 0, kInternal,
                  "swiglu wants [gate | up] along an even last dimension, got {}",
                  tensor::describe(x_t2f));
  Tensor y_tf;
  {
    const tensor::NoGrad no_grad;
    const Tensor x = x_t2f.contiguous();
    Shape shape = tensor::shape_of(x);
    shape.back() /= 2;
    y_tf = tensor::empty(shape, x.scalar_type());
    dispatch_float(x.scalar_type(), [&](auto storage, auto compute) {
      swiglu_rows<decltype(storage), decltype(compute)>(x, y_tf);
    });
  }
  if (!needs_backward({x_t2f})) return y_tf;
  return attach(std::move(y_tf), {x_t2f}, std::make_unique<SwigluBackward>(x_t2f));
}

Tensor dropout(const Tensor& x_th, double p, RngSite site, const Tensor& sample_ids_t,
               const Tensor& token_index_t, std::int64_t channel_begin) {
  if (p == 0.0) return x_th;
  PENTATRON_CHECK(x_th.dim() == 2 && sample_ids_t.numel() == x_th.size(0), kInternal,
                  "dropout: {} with {} sample ids", tensor::describe(x_th),
                  tensor::describe(sample_ids_t));
  const DropoutKey key{.p = p, .site = site, .channel_begin = channel_begin};
  Tensor y_th = dropped(x_th, key, sample_ids_t, token_index_t);
  if (!needs_backward({x_th})) return y_th;
  return attach(std::move(y_th), {x_th},
                std::make_unique<DropoutBackward>(key, sample_ids_t, token_index_t));
}

}  // namespace pentatron::ops
