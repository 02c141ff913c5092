// SPDX-License-Identifier: Apache-2.0
#include "pentatron/ops/linear.h"

#include <utility>

#include "pentatron/ops/op_table.h"
#include "pentatron/ops/projection_backward.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::ops {
namespace {

constexpr std::string_view kName = "Linear";

class LinearBackward final : public ProjectionBackward {
 public:
  LinearBackward(const Tensor& x, std::unique_ptr<Projection> projection, Shape output_shape)
      : ProjectionBackward(x, std::move(projection), kName),
        device_(x.device()),
        output_shape_(std::move(output_shape)) {}

  std::vector<Tensor> apply(std::vector<Tensor> output_grads) override {
    // No gradient at all is a gradient of zeros: first writes must still happen, and other ranks
    // may wait for this one.
    const Tensor dy = output_grads[0].defined() ? output_grads[0].contiguous()
                                                : tensor::zeros(output_shape_, dtype(), device_);
    return {input_gradient(dy)};
  }

 private:
  Device device_;
  Shape output_shape_;
};

constexpr std::string_view kActivationName = "Activation";  // as activation() saves

Tensor activated(Activation kind, const Tensor& x) {
  const tensor::NoGrad no_grad;
  return op_table(x.device()).activation_forward(kind, x.contiguous());
}

class LinearActivationBackward final : public ProjectionBackward {
 public:
  LinearActivationBackward(const Tensor& x, const Tensor& y, std::unique_ptr<Projection> projection,
                           Activation kind, const Scope& scope)
      : ProjectionBackward(x, std::move(projection), kName),
        y_(scope.save(y, kActivationName)),
        kind_(kind) {}

  std::vector<Tensor> apply(std::vector<Tensor> output_grads) override {
    const Tensor y = y_.get().contiguous();
    return {input_gradient(activation_gradient(y, output_grads[0]))};
  }
  void release() override {
    ProjectionBackward::release();
    y_.release();
  }
  std::string_view name() const override { return "LinearActivation"; }

 private:
  Tensor activation_gradient(const Tensor& y, const Tensor& output_grad) {
    // As in LinearBackward.
    if (!output_grad.defined()) return tensor::zeros(y.sizes(), y.scalar_type(), y.device());
    const OpTable& table = op_table(y.device());
    const Tensor dy = output_grad.contiguous();
    if (!projection().sums_bias()) return table.activation_backward(kind_, y, dy);
    ActivationGradient gradient = table.activation_bias_backward(kind_, y, dy);
    projection().set_bias_sums(std::move(gradient.partials_po));
    return std::move(gradient.dx_to);
  }

  Saved y_;  // of the linear map
  Activation kind_;
};

}  // namespace

Tensor linear_activation(const Tensor& x, std::unique_ptr<Projection> projection, Activation kind,
                         const Scope& scope) {
  Tensor y;
  {
    const tensor::NoGrad no_grad;
    y = projection->forward(x, x.scalar_type());
  }
  Tensor z = activated(kind, y);
  const bool learns = projection->learns();
  if (!needs_backward({x}, learns)) return z;
  auto backward =
      std::make_unique<LinearActivationBackward>(x, y, std::move(projection), kind, scope);
  scope.offer_rebuild(z, kActivationName, y,
                      [kind](const Tensor& in) { return activated(kind, in); });
  return attach(std::move(z), {x}, std::move(backward), learns);
}

Tensor linear(const Tensor& x_ti, WeightRef& weight_oi, WeightRef* bias_o, const Scope& scope) {
  return linear(x_ti, std::make_unique<Projection>(weight_oi, bias_o, scope));
}

Tensor linear(const Tensor& x, std::unique_ptr<Projection> projection) {
  Tensor y;
  {
    const tensor::NoGrad no_grad;
    y = projection->forward(x, x.scalar_type());
  }
  const bool learns = projection->learns();
  if (!needs_backward({x}, learns)) return y;
  auto backward = std::make_unique<LinearBackward>(x, std::move(projection), tensor::shape_of(y));
  return attach(std::move(y), {x}, std::move(backward), learns);
}

}  // namespace pentatron::ops
