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

class NormBackward : public Backward {
 public:
  NormBackward(const Tensor& x_th, const NormWeights& weights, const NormOutput& out,
               const Scope& scope, bool needs_dx)
      : x_(scope.save(x_th, weights.name())),
        mean_(out.mean_t),
        rstd_(out.rstd_t),
        weights_(weights),
        needs_dx_(needs_dx) {}

  std::vector<Tensor> apply(std::vector<Tensor> output_grads) override {
    return {input_gradient(output_grads[0], Tensor())};
  }
  void release() override {
    x_.release();
    mean_.release();
    rstd_.release();
  }
  std::string_view name() const override { return weights_.name(); }

 protected:
  // Of what was normalised, with `dsum` added to it; writes those of the weights.
  Tensor input_gradient(const Tensor& dy, const Tensor& dsum) {
    const Tensor x_th = x_.get().contiguous(), rstd_t = rstd_.get();
    const Tensor mean_t = mean_.defined() ? mean_.get() : Tensor();
    const Tensor dy_th = dy.defined()
                             ? dy.contiguous()
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
                                                    .needs_weight_grads = learn,
                                                    .dsum_th = dsum});
    if (learn) write_grad(*weights_.weight_h, grads.dweight_h);
    if (learn && weights_.bias_h != nullptr) write_grad(*weights_.bias_h, grads.dbias_h);
    return grads.dx_th;
  }

 private:
  Saved x_;
  Saved mean_;
  Saved rstd_;
  NormWeights weights_;
  bool needs_dx_;
};

// Its outputs are the sum and the norm, its inputs one or two summands.
class AddedNormBackward final : public NormBackward {
 public:
  AddedNormBackward(const Tensor& sum_th, std::size_t num_summands, const NormWeights& weights,
                    const NormOutput& out, const Scope& scope, bool needs_dx)
      : NormBackward(sum_th, weights, out, scope, needs_dx), num_summands_(num_summands) {}
  std::vector<Tensor> apply(std::vector<Tensor> output_grads) override {
    const Tensor& dsum = output_grads[0];
    const Tensor dx =
        input_gradient(output_grads[1], dsum.defined() ? dsum.contiguous() : Tensor());
    return std::vector<Tensor>(num_summands_, dx);
  }

 private:
  std::size_t num_summands_;
};

// `delta_th` undefined: nothing is added.
NormOutput run_forward(const Tensor& x_th, const Tensor& delta_th, const NormWeights& weights,
                       double eps, DType statistics, bool largest) {
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
  PENTATRON_CHECK(!delta_th.defined() ||
                      (delta_th.sizes() == x.sizes() && delta_th.scalar_type() == x.scalar_type()),
                  kInternal, "norm: {} does not fit the residual stream {}",
                  tensor::describe(delta_th), tensor::describe(x));
  return op_table(x.device())
      .norm_forward({.x_th = x,
                     .delta_th = delta_th.defined() ? delta_th.contiguous() : Tensor(),
                     .weight_h = weight,
                     .bias_h = bias,
                     .eps = eps,
                     .statistics = statistics,
                     .largest = largest});
}

// The norm's output can be made again of what was normalised.
void offer_rebuild(const Tensor& y_th, const Tensor& x_th, const NormWeights& weights, double eps,
                   DType statistics, const Scope& scope) {
  scope.offer_rebuild(
      y_th, weights.name(), x_th,
      [weights, eps, statistics, largest = wants_largest(scope.recipe)](const Tensor& x) {
        return run_forward(x, Tensor(), weights, eps, statistics, largest).y_th;
      });
}

Tensor norm(const Tensor& x_th, const NormWeights& weights, double eps, DType statistics,
            const Scope& scope) {
  NormOutput out =
      run_forward(x_th, Tensor(), weights, eps, statistics, wants_largest(scope.recipe));
  const bool learn = weights.learn();
  if (!needs_backward({x_th}, learn)) return out.y_th;
  auto backward = std::make_unique<NormBackward>(x_th, weights, out, scope, x_th.requires_grad());
  offer_rebuild(out.y_th, x_th, weights, eps, statistics, scope);
  return attach(std::move(out.y_th), {x_th}, std::move(backward), learn);
}

AddedNorm added_norm(const Tensor& residual_th, const Tensor& delta_th, const NormWeights& weights,
                     double eps, DType statistics, const Scope& scope) {
  NormOutput out =
      run_forward(residual_th, delta_th, weights, eps, statistics, wants_largest(scope.recipe));
  const bool learn = weights.learn();
  std::vector<Tensor> inputs = {residual_th};
  if (delta_th.defined()) {
    inputs.push_back(delta_th);
  } else {
    out.sum_th = residual_th;
  }
  if (!needs_backward(inputs, learn)) return {out.sum_th, out.y_th};
  bool needs_dx = false;
  for (const Tensor& input : inputs) needs_dx = needs_dx || input.requires_grad();
  auto backward =
      std::make_unique<AddedNormBackward>(out.sum_th, inputs.size(), weights, out, scope, needs_dx);
  offer_rebuild(out.y_th, out.sum_th, weights, eps, statistics, scope);
  // A sum of one is its summand's memory, with a gradient of its own.
  std::vector<Tensor> outputs = {delta_th.defined() ? std::move(out.sum_th) : residual_th.detach(),
                                 std::move(out.y_th)};
  attach(outputs, inputs, std::move(backward), learn);
  return {outputs[0], outputs[1]};
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

AddedNorm add_layer_norm(const Tensor& residual_th, const Tensor& delta_th, WeightRef& weight_h,
                         WeightRef& bias_h, double eps, DType statistics, const Scope& scope,
                         bool zero_centred) {
  return added_norm(residual_th, delta_th,
                    {.weight_h = &weight_h, .bias_h = &bias_h, .zero_centred = zero_centred}, eps,
                    statistics, scope);
}

AddedNorm add_rms_norm(const Tensor& residual_th, const Tensor& delta_th, WeightRef& weight_h,
                       double eps, DType statistics, const Scope& scope, bool zero_centred) {
  return added_norm(residual_th, delta_th, {.weight_h = &weight_h, .zero_centred = zero_centred},
                    eps, statistics, scope);
}

Tensor l2_norm(const Tensor& x_th, double eps, DType statistics, const Scope& scope) {
  return norm(x_th, {}, eps, statistics, scope);
}

}  // namespace pentatron::ops
