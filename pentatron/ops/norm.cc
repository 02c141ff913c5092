// SPDX-License-Identifier: Apache-2.0
#include "pentatron/ops/norm.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/ops/backward.h"
#include "pentatron/ops/dispatch.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/parallel.h"
#include "pentatron/tensor/saved.h"

// Both norms are one op: RMS norm is layer norm with a mean of zero and no bias.
namespace pentatron::ops {
namespace {

// Rows whose weight gradients are summed into one partial: a function of the number of rows alone.
std::int64_t rows_per_partial(std::int64_t num_rows) {
  return std::max<std::int64_t>(64, (num_rows + 63) / 64);
}

struct NormOutput {
  Tensor y_th;
  Tensor mean_t;  // undefined for RMS norm
  Tensor rstd_t;
};

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
void norm_backward_rows(const Tensor& x_th, const Tensor& dy_th, const Tensor& weight_h,
                        const Tensor& mean_t, const Tensor& rstd_t, const Tensor& dx_th,
                        const Tensor& dweight_ph, const Tensor& dbias_ph) {
  const std::int64_t h = x_th.size(-1), num_rows = rstd_t.numel();
  const T* x = x_th.const_data_ptr<T>();
  const T* dy = dy_th.const_data_ptr<T>();
  const C* weight = weight_h.const_data_ptr<C>();
  const C* means = mean_t.defined() ? mean_t.const_data_ptr<C>() : nullptr;
  const C* rstds = rstd_t.const_data_ptr<C>();
  T* dx = dx_th.defined() ? dx_th.data_ptr<T>() : nullptr;
  C* dweight = dweight_ph.defined() ? dweight_ph.data_ptr<C>() : nullptr;
  C* dbias = dbias_ph.defined() ? dbias_ph.data_ptr<C>() : nullptr;
  const std::int64_t chunk = rows_per_partial(num_rows);
  tensor::parallel_for(
      0, (num_rows + chunk - 1) / chunk, 1, [&](std::int64_t from, std::int64_t to) {
        RowReader<T, C> read_x, read_dy;
        RowWriter<T, C> write;
        for (std::int64_t part = from; part < to; ++part) {
          const std::int64_t end = std::min(num_rows, (part + 1) * chunk);
          for (std::int64_t r = part * chunk; r < end; ++r) {
            const C* row = read_x(x + r * h, h);
            const C* grad = read_dy(dy + r * h, h);
            const C mean = means != nullptr ? means[r] : C(0);
            if (dx != nullptr) {
              C sum_g, sum_gh;
              rows::norm_sums(row, grad, weight, mean, rstds[r], &sum_g, &sum_gh, h);
              const C mean_g = means != nullptr ? sum_g / C(h) : C(0);
              rows::norm_input_grad(row, grad, weight, mean, rstds[r], mean_g, sum_gh / C(h),
                                    write.begin(dx + r * h, h), h);
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

class NormBackward final : public Backward {
 public:
  NormBackward(const Tensor& x_th, WeightRef& weight_h, WeightRef* bias_h, const NormOutput& out)
      : x_(x_th),
        mean_(out.mean_t),
        rstd_(out.rstd_t),
        weight_(&weight_h),
        bias_(bias_h),
        needs_dx_(x_th.requires_grad()) {}

  std::vector<Tensor> apply(std::vector<Tensor> output_grads) override {
    const Tensor x_th = x_.get().contiguous(), rstd_t = rstd_.get();
    const Tensor mean_t = mean_.defined() ? mean_.get() : Tensor();
    const Tensor dy_th = output_grads[0].defined()
                             ? output_grads[0].contiguous()
                             : tensor::zeros(x_th.sizes(), x_th.scalar_type());
    const DType computed = rstd_t.scalar_type();
    const std::int64_t chunk = rows_per_partial(rstd_t.numel());
    const std::int64_t partials = (rstd_t.numel() + chunk - 1) / chunk;
    const bool learn = weight_->trainable() || (bias_ != nullptr && bias_->trainable());
    Tensor dx_th, dweight_ph, dbias_ph;
    if (needs_dx_) dx_th = tensor::empty(x_th.sizes(), x_th.scalar_type());
    if (learn) dweight_ph = tensor::zeros({partials, x_th.size(-1)}, computed);
    if (learn && bias_ != nullptr) dbias_ph = tensor::zeros({partials, x_th.size(-1)}, computed);
    const Tensor weight_h = weight_->backward_weight().to(computed).contiguous();
    dispatch_float(x_th.scalar_type(), computed, [&](auto storage, auto compute) {
      norm_backward_rows<decltype(storage), decltype(compute)>(x_th, dy_th, weight_h, mean_t,
                                                               rstd_t, dx_th, dweight_ph, dbias_ph);
    });
    if (learn) write_grad(*weight_, dweight_ph.sum(IntList{0}));
    if (learn && bias_ != nullptr) write_grad(*bias_, dbias_ph.sum(IntList{0}));
    return {dx_th};
  }
  void release() override {
    x_.release();
    mean_.release();
    rstd_.release();
  }
  std::string_view name() const override { return bias_ != nullptr ? "LayerNorm" : "RmsNorm"; }

 private:
  Saved x_;
  Saved mean_;
  Saved rstd_;
  WeightRef* weight_;
  WeightRef* bias_;
  bool needs_dx_;
};

Tensor norm(const Tensor& x_th, WeightRef& weight_h, WeightRef* bias_h, double eps,
            DType statistics) {
  NormOutput out;
  {
    const tensor::NoGrad no_grad;
    const DType computed = compute_dtype(x_th.scalar_type(), statistics);
    const Tensor x = x_th.contiguous();
    const Tensor weight = weight_h.forward_weight().to(computed).contiguous();
    const Tensor bias =
        bias_h != nullptr ? bias_h->forward_weight().to(computed).contiguous() : Tensor();
    PENTATRON_CHECK(x.dim() >= 1 && weight.dim() == 1 && weight.size(0) == x.size(-1) &&
                        (!bias.defined() || bias.sizes() == weight.sizes()) && x.size(-1) > 0,
                    kInternal, "norm: input {} does not fit the weight {}", tensor::describe(x),
                    tensor::describe(weight));
    const std::int64_t num_rows = x.numel() / x.size(-1);
    out.y_th = tensor::empty(x.sizes(), x.scalar_type());
    out.rstd_t = tensor::empty({num_rows}, computed);
    if (bias_h != nullptr) out.mean_t = tensor::empty({num_rows}, computed);
    dispatch_float(x.scalar_type(), statistics, [&](auto storage, auto compute) {
      norm_rows<decltype(storage), decltype(compute)>(x, weight, bias, eps, out);
    });
  }
  const bool learn = weight_h.trainable() || (bias_h != nullptr && bias_h->trainable());
  if (!needs_backward({x_th}, learn)) return out.y_th;
  auto backward = std::make_unique<NormBackward>(x_th, weight_h, bias_h, out);
  return attach(std::move(out.y_th), {x_th}, std::move(backward), learn);
}

}  // namespace

Tensor layer_norm(const Tensor& x_th, WeightRef& weight_h, WeightRef& bias_h, double eps,
                  DType statistics) {
  return norm(x_th, weight_h, &bias_h, eps, statistics);
}

Tensor rms_norm(const Tensor& x_th, WeightRef& weight_h, double eps, DType statistics) {
  return norm(x_th, weight_h, nullptr, eps, statistics);
}

}  // namespace pentatron::ops
