// SPDX-License-Identifier: Apache-2.0
#include "pentatron/ops/norm.h"

#include <memory>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/ops/backward.h"
#include "pentatron/ops/op_table.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/saved.h"

// All norms are one op: RMS norm is layer norm with a mean of zero and no bias, L2 norm has ones
// for a weight.
namespace pentatron::ops {
namespace {

std::string_view name_of(const WeightRef* bias_h) {
  return bias_h != nullptr ? "LayerNorm" : "RmsNorm";
}

bool learns(const WeightRef* weight_h, const WeightRef* bias_h) {
  return (weight_h != nullptr && weight_h->trainable()) ||
         (bias_h != nullptr && bias_h->trainable());
}

// The weight of a norm that has none: [h] in the dtype and on the device of x.
Tensor ones(const Tensor& x_th) {
  return tensor::full({x_th.size(-1)}, 1.0, x_th.scalar_type(), x_th.device());
}

class NormBackward final : public Backward {
 public:
  NormBackward(const Tensor& x_th, WeightRef* weight_h, WeightRef* bias_h, const NormOutput& out,
               const Scope& scope)
      : x_(scope.save(x_th, name_of(bias_h))),
        mean_(out.mean_t),
        rstd_(out.rstd_t),
        weight_(weight_h),
        bias_(bias_h),
        needs_dx_(x_th.requires_grad()) {}

  std::vector<Tensor> apply(std::vector<Tensor> output_grads) override {
    const Tensor x_th = x_.get().contiguous(), rstd_t = rstd_.get();
    const Tensor mean_t = mean_.defined() ? mean_.get() : Tensor();
    const Tensor dy_th = output_grads[0].defined()
                             ? output_grads[0].contiguous()
                             : tensor::zeros(x_th.sizes(), x_th.scalar_type(), x_th.device());
    const bool learn = learns(weight_, bias_);
    const NormGradients grads =
        op_table(x_th.device())
            .norm_backward({.x_th = x_th,
                            .dy_th = dy_th,
                            .weight_h = weight_ != nullptr ? weight_->backward_weight().contiguous()
                                                           : ones(x_th),
                            .mean_t = mean_t,
                            .rstd_t = rstd_t,
                            .needs_dx = needs_dx_,
                            .needs_weight_grads = learn});
    if (learn) write_grad(*weight_, grads.dweight_h);
    if (learn && bias_ != nullptr) write_grad(*bias_, grads.dbias_h);
    return {grads.dx_th};
  }
  void release() override {
    x_.release();
    mean_.release();
    rstd_.release();
  }
  std::string_view name() const override { return name_of(bias_); }

 private:
  Saved x_;
  Saved mean_;
  Saved rstd_;
  WeightRef* weight_;
  WeightRef* bias_;
  bool needs_dx_;
};

NormOutput run_forward(const Tensor& x_th, WeightRef* weight_h, WeightRef* bias_h, double eps,
                       DType statistics) {
  const tensor::NoGrad no_grad;
  const Tensor x = x_th.contiguous();
  const Tensor weight = weight_h != nullptr ? weight_h->forward_weight().contiguous() : ones(x);
  const Tensor bias = bias_h != nullptr ? bias_h->forward_weight().contiguous() : Tensor();
  PENTATRON_CHECK(x.dim() >= 1 && weight.dim() == 1 && weight.size(0) == x.size(-1) &&
                      (!bias.defined() || bias.sizes() == weight.sizes()) && x.size(-1) > 0,
                  kInternal, "norm: input {} does not fit the weight {}", tensor::describe(x),
                  tensor::describe(weight));
  return op_table(x.device())
      .norm_forward(
          {.x_th = x, .weight_h = weight, .bias_h = bias, .eps = eps, .statistics = statistics});
}

Tensor norm(const Tensor& x_th, WeightRef* weight_h, WeightRef* bias_h, double eps,
            DType statistics, const Scope& scope) {
  NormOutput out = run_forward(x_th, weight_h, bias_h, eps, statistics);
  const bool learn = learns(weight_h, bias_h);
  if (!needs_backward({x_th}, learn)) return out.y_th;
  auto backward = std::make_unique<NormBackward>(x_th, weight_h, bias_h, out, scope);
  scope.offer_rebuild(out.y_th, name_of(bias_h), x_th,
                      [weight_h, bias_h, eps, statistics](const Tensor& x) {
                        return run_forward(x, weight_h, bias_h, eps, statistics).y_th;
                      });
  return attach(std::move(out.y_th), {x_th}, std::move(backward), learn);
}

}  // namespace

Tensor layer_norm(const Tensor& x_th, WeightRef& weight_h, WeightRef& bias_h, double eps,
                  DType statistics, const Scope& scope) {
  return norm(x_th, &weight_h, &bias_h, eps, statistics, scope);
}

Tensor rms_norm(const Tensor& x_th, WeightRef& weight_h, double eps, DType statistics,
                const Scope& scope) {
  return norm(x_th, &weight_h, nullptr, eps, statistics, scope);
}

Tensor l2_norm(const Tensor& x_th, double eps, DType statistics, const Scope& scope) {
  return norm(x_th, nullptr, nullptr, eps, statistics, scope);
}

}  // namespace pentatron::ops
