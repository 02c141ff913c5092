// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>

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

constexpr double kInvSqrt2 = 0.70710678118654752440;
constexpr double kInvSqrt2Pi = 0.39894228040143267794;
constexpr double kQuickGelu = 1.702;
constexpr double kGeluScale = 0.79788456080286535588;  // sqrt(2 / pi)
constexpr double kGeluCubic = 0.044715;

template <typename C>
C gelu_erf(C x) {
  return C(0.5) * x * (C(1) + std::erf(x * C(kInvSqrt2)));
}
template <typename C>
C gelu_erf_slope(C x) {
  return C(0.5) * (C(1) + std::erf(x * C(kInvSqrt2))) +
         x * C(kInvSqrt2Pi) * std::exp(C(-0.5) * x * x);
}

template <typename C>
void activate(Activation kind, const C* x, C* y, std::int64_t n) {
  switch (kind) {
    case Activation::kGeluTanh:
      rows::gelu(x, y, n);
      return;
    case Activation::kGeluErf:
      for (std::int64_t i = 0; i < n; ++i) y[i] = gelu_erf(x[i]);
      return;
    case Activation::kSquaredRelu:
      for (std::int64_t i = 0; i < n; ++i) {
        const C positive = std::max(x[i], C(0));
        y[i] = positive * positive;
      }
      return;
  }
}

template <typename C>
void activate_backward(Activation kind, const C* x, const C* dy, C* dx, std::int64_t n) {
  switch (kind) {
    case Activation::kGeluTanh:
      rows::gelu_backward(x, dy, dx, n);
      return;
    case Activation::kGeluErf:
      for (std::int64_t i = 0; i < n; ++i) dx[i] = dy[i] * gelu_erf_slope(x[i]);
      return;
    case Activation::kSquaredRelu:
      for (std::int64_t i = 0; i < n; ++i) dx[i] = dy[i] * C(2) * std::max(x[i], C(0));
      return;
  }
}

// Any gate but plain SwiGLU, which has row kernels of its own. All are f(g) = g sigmoid(z(g)) with
// z linear or, for the tanh form of GELU, 2 sqrt(2 / pi) (g + 0.044715 g^3).
template <typename C>
class GateRow final {
 public:
  explicit GateRow(const Gate& gate)
      : slope_(slope_of(gate.kind)),
        cubic_(gate.kind == GateKind::kGeluTanh ? C(kGeluCubic) : C(0)),
        offset_(static_cast<C>(gate.offset)),
        clamp_(gate.clamp > 0.0 ? static_cast<C>(gate.clamp) : std::numeric_limits<C>::infinity()) {
  }

  void forward(const C* gate, const C* up, C* y, std::int64_t n) const {
    for (std::int64_t i = 0; i < n; ++i) {
      const C g = std::min(gate[i], clamp_);
      y[i] = g * sigmoid(g) * (std::clamp(up[i], -clamp_, clamp_) + offset_);
    }
  }

  void backward(const C* gate, const C* up, const C* dy, C* dgate, C* dup, std::int64_t n) const {
    for (std::int64_t i = 0; i < n; ++i) {
      const C g = std::min(gate[i], clamp_), u = std::clamp(up[i], -clamp_, clamp_);
      const C s = sigmoid(g), d = dy[i];
      const bool gate_cut = gate[i] > clamp_, up_cut = up[i] < -clamp_ || up[i] > clamp_;
      dgate[i] =
          gate_cut ? C(0) : d * (u + offset_) * s * (C(1) + argument_slope(g) * g * (C(1) - s));
      dup[i] = up_cut ? C(0) : d * g * s;
    }
  }

 private:
  static C slope_of(GateKind kind) {
    switch (kind) {
      case GateKind::kSilu:
        return C(1);
      case GateKind::kQuickGelu:
        return C(kQuickGelu);
      case GateKind::kGeluTanh:
        return C(2 * kGeluScale);
    }
    return C(1);
  }
  C sigmoid(C g) const { return C(1) / (C(1) + std::exp(-slope_ * g * (C(1) + cubic_ * g * g))); }
  C argument_slope(C g) const { return slope_ * (C(1) + C(3) * cubic_ * g * g); }

  C slope_;
  C cubic_;
  C offset_;
  C clamp_;
};

template <typename T, typename C>
void gated_rows(const Gate& gate, const Tensor& x_t2f, const Tensor& y_tf) {
  const std::int64_t f = y_tf.size(-1), num_rows = f == 0 ? 0 : y_tf.numel() / f;
  const T* x = x_t2f.const_data_ptr<T>();
  T* y = y_tf.data_ptr<T>();
  const GateRow<C> general(gate);
  tensor::parallel_for(0, num_rows, row_grain(f), [&](std::int64_t from, std::int64_t to) {
    RowReader<T, C> read_gate, read_up;
    RowWriter<T, C> write;
    for (std::int64_t r = from; r < to; ++r) {
      const C *gate_row = read_gate(x + r * 2 * f, f), *up_row = read_up(x + r * 2 * f + f, f);
      C* out = write.begin(y + r * f, f);
      if (is_plain_swiglu(gate)) {
        rows::swiglu(gate_row, up_row, out, f);
      } else {
        general.forward(gate_row, up_row, out, f);
      }
      write.end(y + r * f, f);
    }
  });
}

template <typename T, typename C>
void gated_backward_rows(const Gate& gate, const Tensor& x_t2f, const Tensor& dy_tf,
                         const Tensor& dx_t2f) {
  const std::int64_t f = dy_tf.size(-1), num_rows = f == 0 ? 0 : dy_tf.numel() / f;
  const T* x = x_t2f.const_data_ptr<T>();
  const T* dy = dy_tf.const_data_ptr<T>();
  T* dx = dx_t2f.data_ptr<T>();
  const GateRow<C> general(gate);
  tensor::parallel_for(0, num_rows, row_grain(f), [&](std::int64_t from, std::int64_t to) {
    RowReader<T, C> read_gate, read_up, read_dy;
    RowWriter<T, C> write_gate, write_up;
    for (std::int64_t r = from; r < to; ++r) {
      const T* row = x + r * 2 * f;
      T* grad = dx + r * 2 * f;
      const C *gate_row = read_gate(row, f), *up_row = read_up(row + f, f);
      const C* dy_row = read_dy(dy + r * f, f);
      C *dgate = write_gate.begin(grad, f), *dup = write_up.begin(grad + f, f);
      if (is_plain_swiglu(gate)) {
        rows::swiglu_backward(gate_row, up_row, dy_row, dgate, dup, f);
      } else {
        general.backward(gate_row, up_row, dy_row, dgate, dup, f);
      }
      write_gate.end(grad, f);
      write_up.end(grad + f, f);
    }
  });
}

}  // namespace

Tensor cpu::activation_forward(Activation kind, const Tensor& x) {
  Tensor y = tensor::empty(x.sizes(), x.scalar_type());
  dispatch_float(x.scalar_type(), [&](auto storage, auto compute) {
    using T = decltype(storage);
    using C = decltype(compute);
    const T* in = x.const_data_ptr<T>();
    T* out = y.data_ptr<T>();
    over_flat(x.numel(), [=] {
      return [=, read = RowReader<T, C>(), write = RowWriter<T, C>()](std::int64_t at,
                                                                      std::int64_t n) mutable {
        activate(kind, read(in + at, n), write.begin(out + at, n), n);
        write.end(out + at, n);
      };
    });
  });
  return y;
}

Tensor cpu::activation_backward(Activation kind, const Tensor& x, const Tensor& dy) {
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
        activate_backward(kind, read_x(in + at, n), read_dy(grad + at, n), write.begin(out + at, n),
                          n);
        write.end(out + at, n);
      };
    });
  });
  return dx;
}

// What column_sums does on CPUs goes over memory that is still near.
ActivationGradient cpu::activation_bias_backward(Activation kind, const Tensor& x_to,
                                                 const Tensor& dy_to) {
  return {.dx_to = activation_backward(kind, x_to, dy_to), .partials_po = {}};
}

void cpu::add_partial_sums(const Tensor& partials_po, const GradSlot& slot) {
  write_slot(slot, partials_po.sum(0));
}

Tensor cpu::gated_forward(const Gate& gate, const Tensor& x_t2f, bool /*largest*/) {
  Shape shape = tensor::shape_of(x_t2f);
  shape.back() /= 2;
  Tensor y_tf = tensor::empty(shape, x_t2f.scalar_type());
  dispatch_float(x_t2f.scalar_type(), [&](auto storage, auto compute) {
    gated_rows<decltype(storage), decltype(compute)>(gate, x_t2f, y_tf);
  });
  return y_tf;
}

Tensor cpu::gated_backward(const Gate& gate, const Tensor& x_t2f, const Tensor& dy_tf,
                           bool /*largest*/) {
  Tensor dx_t2f = tensor::empty(x_t2f.sizes(), x_t2f.scalar_type());
  dispatch_float(x_t2f.scalar_type(), [&](auto storage, auto compute) {
    gated_backward_rows<decltype(storage), decltype(compute)>(gate, x_t2f, dy_tf, dx_t2f);
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
