// SPDX-License-Identifier: Apache-2.0
#include "pentatron/ops/norm.h"

#include <memory>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/ops/backward.h"
#include "pentatron/ops/dispatch.h"
#include "pentatron/ops/op_table.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/saved.h"

// All norms are one op: RMS norm is layer norm with a mean of zero and no bias, L2 norm has ones
// for a weight.
namespace pentatron::ops {
namespace {

// The weights of a norm: none (ones), as they are, or 1 + weight.
struct NormWeights {
  WeightRef* weight_h = nullptr;
  WeightRef* bias_h = nullptr;
  bool zero_centred = false;

  [[nodiscard]] bool learn() const {
    return (weight_h != nullptr && weight_h->trainable()) ||
           (bias_h != nullptr && bias_h->trainable());
  }
  // Contiguous [h]. In fp32 where one is added: bf16 has no room for small differences from 1.
  [[nodiscard]] Tensor factors(const Tensor& weight, const Tensor& x_th) const {
    if (weight_h == nullptr) {
      return tensor::full({x_th.size(-1)}, 1.0, x_th.scalar_type(), x_th.device());
    }
    if (!zero_centred) return weight.contiguous();
    return weight.to(compute_dtype(weight.scalar_type())).add(1.0);
  }
  [[nodiscard]] std::string_view name() const {
    return bias_h != nullptr ? "LayerNorm" : "RmsNorm";
  }
};

class NormBackward final : public Backward {
 public:
  NormBackward(const Tensor& x_th, const NormWeights& weights, const NormOutput& out,
               const Scope& scope)
      : x_(scope.save(x_th, weights.name())),
        mean_(out.mean_t),
        rstd_(out.rstd_t),
        weights_(weights),
        needs_dx_(x_th.requires_grad()) {}

  std::vector<Tensor> apply(std::vector<Tensor> output_grads) override {
    const Tensor x_th = x_.get().contiguous(), rstd_t = rstd_.get();
    const Tensor mean_t = mean_.defined() ? mean_.get() : Tensor();
    const Tensor dy_th = output_grads[0].defined()
                             ? output_grads[0].contiguous()
                             : tensor::zeros(x_th.sizes(), x_th.scalar_type(), x_th.device());
    const bool learn = weights_.learn();
    const Tensor weight =
        weights_.weight_h != nullptr ? weights_.weight_h->backward_weight() : Tensor();
    const NormGradients grads = op_table(x_th.device())
                                    .norm_backward({.x_th = x_th,
                                                    .dy_th = dy_th,
                                                    .weight_h = weights_.factors(weight, x_th),
                                                    .mean_t = mean_t,
                                                    .rstd_t = rstd_t,
                                                    .needs_dx = needs_dx_,
                                                    .needs_weight_grads = learn});
    if (learn) write_grad(*weights_.weight_h, grads.dweight_h);
    if (learn && weights_.bias_h != nullptr) write_grad(*weights_.bias_h, grads.dbias_h);
    return {grads.dx_th};
  }
  void release() override {
    x_.release();
    mean_.release();
    rstd_.release();
  }
  std::string_view name() const override { return weights_.name(); }

 private:
  Saved x_;
  Saved mean_;
  Saved rstd_;
  NormWeights weights_;
  bool needs_dx_;
};

NormOutput run_forward(const Tensor& x_th, const NormWeights& weights, double eps,
                       DType statistics) {
  const tensor::NoGrad no_grad;
  const Tensor x = x_th.contiguous();
  const Tensor given = weights.weight_h != nullptr ? weights.weight_h->forward_weight() : Tensor();
  const Tensor weight = weights.factors(given, x);
  const Tensor bias =
      weights.bias_h != nullptr ? weights.bias_h->forward_weight().contiguous() : Tensor();
  PENTATRON_CHECK(x.dim() >= 1 && weight.dim() == 1 && weight.size(0) == x.size(-1) &&
                      (!bias.defined() || bias.sizes() == weight.sizes()) && x.size(-1) > 0,
                  kInternal, "norm: input {} does not fit the weight {}", tensor::describe(x),
                  tensor::describe(weight));
  return op_table(x.device())
      .norm_forward(
          {.x_th = x, .weight_h = weight, .bias_h = bias, .eps = eps, .statistics = statistics});
}

Tensor norm(const Tensor& x_th, const NormWeights& weights, double eps, DType statistics,
            const Scope& scope) {
  NormOutput out = run_forward(x_th, weights, eps, statistics);
  const bool learn = weights.learn();
  if (!needs_backward({x_th}, learn)) return out.y_th;
  auto backward = std::make_unique<NormBackward>(x_th, weights, out, scope);
  scope.offer_rebuild(out.y_th, weights.name(), x_th, [weights, eps, statistics](const Tensor& x) {
    return run_forward(x, weights, eps, statistics).y_th;
  });
  return attach(std::move(out.y_th), {x_th}, std::move(backward), learn);
}

}  // namespace

Tensor layer_norm(const Tensor& x_th, WeightRef& weight_h, WeightRef& bias_h, double eps,
                  DType statistics, const Scope& scope, bool zero_centred) {
  return norm(x_th, {.weight_h = &weight_h, .bias_h = &bias_h, .zero_centred = zero_centred}, eps,
              statistics, scope);
}

Tensor rms_norm(const Tensor& x_th, WeightRef& weight_h, double eps, DType statistics,
                const Scope& scope, bool zero_centred) {
  return norm(x_th, {.weight_h = &weight_h, .zero_centred = zero_centred}, eps, statistics, scope);
}

Tensor l2_norm(const Tensor& x_th, double eps, DType statistics, const Scope& scope) {
  return norm(x_th, {}, eps, statistics, scope);
}

}  // namespace pentatron::ops
