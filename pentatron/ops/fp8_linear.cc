// SPDX-License-Identifier: Apache-2.0
#include "pentatron/ops/fp8_linear.h"

#include <memory>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/ops/backward.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/saved.h"

namespace pentatron::ops {
namespace {

using tensor::Fp8Format;
using tensor::Fp8Tensor;

Fp8Tensor payload_of(const WeightView& view) { return {.data = view.data, .scale = view.scale}; }

class Fp8LinearBackward final : public Backward {
 public:
  Fp8LinearBackward(const Tensor& x_ti, WeightRef& weight_oi, Shape output_shape,
                    const LinearOptions& options, Fp8Format gradient)
      : weight_(&weight_oi),
        x_(weight_oi.trainable() ? Saved(x_ti) : Saved()),
        needs_dx_(x_ti.requires_grad()),
        dtype_(x_ti.scalar_type()),
        device_(x_ti.device()),
        output_shape_(std::move(output_shape)),
        options_(options),
        gradient_(gradient) {}

  std::vector<Tensor> apply(std::vector<Tensor> output_grads) override {
    const Tensor dy_to = output_grads[0].defined() ? output_grads[0].contiguous()
                                                   : tensor::zeros(output_shape_, dtype_, device_);
    Tensor dx_ti;
    if (needs_dx_) {
      const Fp8Tensor weight_io = payload_of(weight_->backward_view(WeightFormat::kFp8ColumnWise));
      dx_ti = tensor::fp8_matmul(tensor::quantize_fp8(dy_to, gradient_), weight_io, dtype_);
    }
    if (x_.defined()) {
      auto work = [weight = weight_, dy_to, x_ti = x_.get()] {
        const GradSlot slot = weight->grad_slot();
        tensor::matmul_into(slot.buffer, dy_to.t(), x_ti, slot.accumulate);
      };
      if (options_.weight_grads != nullptr) {
        options_.weight_grads->put(options_.layer, std::move(work));
      } else {
        work();
      }
    }
    return {dx_ti};
  }
  void release() override { x_.release(); }
  std::string_view name() const override { return "Fp8Linear"; }

 private:
  WeightRef* weight_;
  Saved x_;
  bool needs_dx_;
  DType dtype_;
  Device device_;
  Shape output_shape_;
  LinearOptions options_;
  Fp8Format gradient_;
};

}  // namespace

Tensor fp8_linear(const Tensor& x_ti, WeightRef& weight_oi, const LinearOptions& options,
                  Fp8Format gradient) {
  Tensor y_to;
  {
    const tensor::NoGrad no_grad;
    const Fp8Tensor weight = payload_of(weight_oi.forward_view(WeightFormat::kFp8RowWise));
    PENTATRON_CHECK(x_ti.dim() == 2 && weight.data.dim() == 2 &&
                        x_ti.size(1) == weight.data.size(1) && weight.scale.defined(),
                    kInternal, "fp8 linear: input {} does not fit the weight {}",
                    tensor::describe(x_ti), tensor::describe(weight.data));
    y_to = tensor::fp8_matmul(tensor::quantize_fp8(x_ti, Fp8Format::kE4M3), weight,
                              x_ti.scalar_type());
  }
  if (!needs_backward({x_ti}, weight_oi.trainable())) return y_to;
  auto backward = std::make_unique<Fp8LinearBackward>(x_ti, weight_oi, tensor::shape_of(y_to),
                                                      options, gradient);
  return attach(std::move(y_to), {x_ti}, std::move(backward), weight_oi.trainable());
}

}  // namespace pentatron::ops
