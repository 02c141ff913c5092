// SPDX-License-Identifier: Apache-2.0
#include "pentatron/ops/linear.h"

#include <utility>

#include "pentatron/ops/backward.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::ops {
namespace {

constexpr std::string_view kName = "Linear";

class LinearBackward final : public Backward {
 public:
  LinearBackward(const Tensor& x, std::unique_ptr<Projection> projection, Shape output_shape)
      : projection_(std::move(projection)),
        x_(projection_->save_input(x, kName)),
        needs_dx_(x.requires_grad()),
        dtype_(x.scalar_type()),
        device_(x.device()),
        output_shape_(std::move(output_shape)) {}

  std::vector<Tensor> apply(std::vector<Tensor> output_grads) override {
    // No gradient at all is a gradient of zeros: first writes must still happen, and other ranks
    // may wait for this one.
    const Tensor dy = output_grads[0].defined() ? output_grads[0].contiguous()
                                                : tensor::zeros(output_shape_, dtype_, device_);
    return {projection_->backward(dy, x_, dtype_, needs_dx_)};
  }
  void release() override { x_.release(); }
  std::string_view name() const override { return kName; }

 private:
  std::unique_ptr<Projection> projection_;
  Saved x_;
  bool needs_dx_;
  DType dtype_;
  Device device_;
  Shape output_shape_;
};

}  // namespace

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
