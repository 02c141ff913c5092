// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "pentatron/ops/cpu_ops.h"
#include "pentatron/ops/dispatch.h"
#include "pentatron/ops/row_partials.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/parallel.h"

namespace pentatron::ops {
namespace {

// sum = x + delta, rounded to the dtype of both.
template <typename T, typename C>
void add_rows(const Tensor& x_th, const Tensor& delta_th, const Tensor& sum_th) {
  const std::int64_t h = x_th.size(-1), num_rows = x_th.numel() / h;
  const T* x = x_th.const_data_ptr<T>();
  const T* delta = delta_th.const_data_ptr<T>();
  T* sum = sum_th.data_ptr<T>();
  tensor::parallel_for(0, num_rows, row_grain(h), [&](std::int64_t from, std::int64_t to) {
    RowReader<T, C> read_x, read_delta;
    RowWriter<T, C> write;
    for (std::int64_t r = from; r < to; ++r) {
      const C* a = read_x(x + r * h, h);
      const C* b = read_delta(delta + r * h, h);
      C* c = write.begin(sum + r * h, h);
      for (std::int64_t i = 0; i < h; ++i) c[i] = a[i] + b[i];
      write.end(sum + r * h, h);
    }
  });
}

template <typename T, typename C>
void norm_rows(const Tensor& x_th, const Tensor& weight_h, const Tensor& bias_h, double eps,
               NormOutput& out) {
  const std::int64_t h = x_th.size(-1), num_rows = out.rstd_t.numel();
  const T* x = x_th.const_data_ptr<T>();
  T* y = out.y_th.data_ptr<T>();
  const C* weight = weight_h.const_data_ptr<C>();
  const C* bias = bias_h.defined() ? bias_h.const_data_ptr<C>() : nullptr;
  C* means = out.mean_t.defined() ? out.mean_t.data_ptr<C>() : nullptr;
  C* rstds = out.rstd_t.data_ptr<C>();
  tensor::parallel_for(0, num_rows, row_grain(h), [&](std::int64_t from, std::int64_t to) {
    RowReader<T, C> read;
    RowWriter<T, C> write;
    for (std::int64_t r = from; r < to; ++r) {
      const C* row = read(x + r * h, h);
      const C mean = means != nullptr ? rows::sum(row, h) / C(h) : C(0);
      const C variance = rows::sum_squares(row, mean, h) / C(h);
      const C rstd = C(1) / std::sqrt(variance + C(eps));
      rows::normalize(row, mean, rstd, weight, bias, write.begin(y + r * h, h), h);
      write.end(y + r * h, h);
      if (means != nullptr) means[r] = mean;
      rstds[r] = rstd;
    }
  });
}

// dx (may be undefined) and partial weight and bias gradients, [partials, h] each.
template <typename T, typename C>
void norm_backward_rows(const NormGradInput& in, const Tensor& weight_h, const Tensor& dx_th,
                        const Tensor& dweight_ph, const Tensor& dbias_ph) {
  const std::int64_t h = in.x_th.size(-1), num_rows = in.rstd_t.numel();
  const T* x = in.x_th.const_data_ptr<T>();
  const T* dy = in.dy_th.const_data_ptr<T>();
  const T* dsum = in.dsum_th.defined() ? in.dsum_th.const_data_ptr<T>() : nullptr;
  const C* weight = weight_h.const_data_ptr<C>();
  const C* means = in.mean_t.defined() ? in.mean_t.const_data_ptr<C>() : nullptr;
  const C* rstds = in.rstd_t.const_data_ptr<C>();
  T* dx = dx_th.defined() ? dx_th.data_ptr<T>() : nullptr;
  C* dweight = dweight_ph.defined() ? dweight_ph.data_ptr<C>() : nullptr;
  C* dbias = dbias_ph.defined() ? dbias_ph.data_ptr<C>() : nullptr;
  const std::int64_t chunk = rows_per_partial(num_rows);
  tensor::parallel_for(
      0, (num_rows + chunk - 1) / chunk, 1, [&](std::int64_t from, std::int64_t to) {
        RowReader<T, C> read_x, read_dy, read_dsum;
        RowWriter<T, C> write;
        for (std::int64_t part = from; part < to; ++part) {
          const std::int64_t end = std::min(num_rows, (part + 1) * chunk);
          if (dweight != nullptr) std::fill_n(dweight + part * h, h, C(0));
          if (dbias != nullptr) std::fill_n(dbias + part * h, h, C(0));
          for (std::int64_t r = part * chunk; r < end; ++r) {
            const C* row = read_x(x + r * h, h);
            const C* grad = read_dy(dy + r * h, h);
            const C mean = means != nullptr ? means[r] : C(0);
            if (dx != nullptr) {
              C sum_g, sum_gh;
              rows::norm_sums(row, grad, weight, mean, rstds[r], &sum_g, &sum_gh, h);
              const C mean_g = means != nullptr ? sum_g / C(h) : C(0);
              C* out = write.begin(dx + r * h, h);
              rows::norm_input_grad(row, grad, weight, mean, rstds[r], mean_g, sum_gh / C(h), out,
                                    h);
              if (dsum != nullptr) {
                const C* more = read_dsum(dsum + r * h, h);
                for (std::int64_t i = 0; i < h; ++i) out[i] += more[i];
              }
              write.end(dx + r * h, h);
            }
            if (dweight != nullptr) {
              rows::norm_weight_grad(row, grad, mean, rstds[r], dweight + part * h,
                                     dbias != nullptr ? dbias + part * h : nullptr, h);
            }
          }
        }
      });
}

}  // namespace

NormOutput cpu::norm_forward(const NormInput& in) {
  NormOutput out;
  const DType computed = compute_dtype(in.x_th.scalar_type(), in.statistics);
  if (in.delta_th.defined()) {
    out.sum_th = tensor::empty(in.x_th.sizes(), in.x_th.scalar_type());
    dispatch_float(in.x_th.scalar_type(), in.statistics, [&](auto storage, auto compute) {
      add_rows<decltype(storage), decltype(compute)>(in.x_th, in.delta_th, out.sum_th);
    });
  }
  const Tensor& x = in.delta_th.defined() ? out.sum_th : in.x_th;
  const Tensor weight = tensor::cast(in.weight_h, computed).contiguous();
  const Tensor bias =
      in.bias_h.defined() ? tensor::cast(in.bias_h, computed).contiguous() : Tensor();
  const std::int64_t num_rows = x.numel() / x.size(-1);
  out.y_th = tensor::empty(x.sizes(), x.scalar_type());
  out.rstd_t = tensor::empty({num_rows}, computed);
  if (bias.defined()) out.mean_t = tensor::empty({num_rows}, computed);
  dispatch_float(x.scalar_type(), in.statistics, [&](auto storage, auto compute) {
    norm_rows<decltype(storage), decltype(compute)>(x, weight, bias, in.eps, out);
  });
  return out;
}

NormGradients cpu::norm_backward(const NormGradInput& in) {
  const Tensor& x_th = in.x_th;
  const DType computed = in.rstd_t.scalar_type();
  const std::int64_t chunk = rows_per_partial(in.rstd_t.numel());
  const std::int64_t partials = (in.rstd_t.numel() + chunk - 1) / chunk;
  const bool has_bias = in.mean_t.defined();
  Tensor dx_th, dweight_ph, dbias_ph;
  if (in.needs_dx) dx_th = tensor::empty(x_th.sizes(), x_th.scalar_type());
  if (in.needs_weight_grads) {
    dweight_ph = tensor::empty({partials, x_th.size(-1)}, computed);
    if (has_bias) dbias_ph = tensor::empty({partials, x_th.size(-1)}, computed);
  }
  const Tensor weight_h = tensor::cast(in.weight_h, computed).contiguous();
  dispatch_float(x_th.scalar_type(), computed, [&](auto storage, auto compute) {
    norm_backward_rows<decltype(storage), decltype(compute)>(in, weight_h, dx_th, dweight_ph,
                                                             dbias_ph);
  });
  NormGradients out{.dx_th = dx_th, .dweight_h = {}, .dbias_h = {}};
  if (dweight_ph.defined()) out.dweight_h = sum_of_partials(dweight_ph);
  if (dbias_ph.defined()) out.dbias_h = sum_of_partials(dbias_ph);
  return out;
}

}  // namespace pentatron::ops
