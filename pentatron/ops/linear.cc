// SPDX-License-Identifier: Apache-2.0
#include "pentatron/ops/linear.h"

#include <memory>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/ops/backward.h"
#include "pentatron/ops/op_table.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/saved.h"
#include "pentatron/tensor/views.h"

namespace pentatron::ops {
namespace {

void write_bias_grad(WeightRef& bias_o, const Tensor& dy_to) {
  if (!bias_o.trainable()) return;
  const GradSlot slot = bias_o.grad_slot();
  PENTATRON_CHECK(slot.buffer.dim() == 1 && slot.buffer.size(0) == dy_to.size(1), kInternal,
                  "bias gradient: slot {} for an output gradient {}", tensor::describe(slot.buffer),
                  tensor::describe(dy_to));
  op_table(dy_to.device()).column_sums(dy_to.contiguous(), slot);
}

void write_weight_grad(WeightRef& weight_oi, const Tensor& dy_to, const Tensor& x_ti) {
  const GradSlot slot = weight_oi.grad_slot();
  tensor::matmul_into(slot.buffer, tensor::transposed(dy_to), x_ti, slot.accumulate);
}

class LinearBackward final : public Backward {
 public:
  LinearBackward(const Tensor& x_ti, WeightRef& weight_oi, WeightRef* bias_o, Shape output_shape,
                 const LinearOptions& options)
      : weight_(&weight_oi),
        bias_(bias_o != nullptr && bias_o->trainable() ? bias_o : nullptr),
        x_(weight_oi.trainable() ? Saved(x_ti) : Saved()),
        needs_dx_(x_ti.requires_grad()),
        dtype_(x_ti.scalar_type()),
        device_(x_ti.device()),
        output_shape_(std::move(output_shape)),
        options_(options) {}

  std::vector<Tensor> apply(std::vector<Tensor> output_grads) override {
    // No gradient at all is a gradient of zeros: first writes must still happen.
    const Tensor dy_to = output_grads[0].defined() ? output_grads[0].contiguous()
                                                   : tensor::zeros(output_shape_, dtype_, device_);
    Tensor dx_ti;
    if (needs_dx_) dx_ti = tensor::matmul(dy_to, weight_->backward_weight());
    queue_weight_grads(dy_to);
    return {dx_ti};
  }
  void release() override { x_.release(); }
  std::string_view name() const override { return "Linear"; }

 private:
  void queue_weight_grads(const Tensor& dy_to) {
    WeightRef* weight = x_.defined() ? weight_ : nullptr;
    if (weight == nullptr && bias_ == nullptr) return;
    auto work = [weight, bias = bias_, dy_to, x_ti = weight != nullptr ? x_.get() : Tensor()] {
      if (weight != nullptr) write_weight_grad(*weight, dy_to, x_ti);
      if (bias != nullptr) write_bias_grad(*bias, dy_to);
    };
    if (options_.weight_grads != nullptr) {
      options_.weight_grads->put(options_.layer, std::move(work));
    } else {
      work();
    }
  }

  WeightRef* weight_;
  WeightRef* bias_;
  Saved x_;
  bool needs_dx_;
  DType dtype_;
  Device device_;
  Shape output_shape_;
  LinearOptions options_;
};

class AddBiasBackward final : public Backward {
 public:
  explicit AddBiasBackward(WeightRef& bias_o) : bias_(&bias_o) {}
  std::vector<Tensor> apply(std::vector<Tensor> output_grads) override {
    if (output_grads[0].defined()) write_bias_grad(*bias_, output_grads[0]);
    return output_grads;
  }
  void release() override {}
  std::string_view name() const override { return "AddBias"; }

 private:
  WeightRef* bias_;
};

}  // namespace

Tensor linear(const Tensor& x_ti, WeightRef& weight_oi, WeightRef* bias_o,
              const LinearOptions& options) {
  Tensor y_to;
  {
    const tensor::NoGrad no_grad;
    const Tensor weight = weight_oi.forward_weight();
    PENTATRON_CHECK(x_ti.dim() == 2 && weight.dim() == 2 && x_ti.size(1) == weight.size(1),
                    kInternal, "linear: input {} does not fit the weight {}",
                    tensor::describe(x_ti), tensor::describe(weight));
    y_to = bias_o != nullptr
               ? tensor::matmul_bias(x_ti, tensor::transposed(weight), bias_o->forward_weight())
               : tensor::matmul(x_ti, tensor::transposed(weight));
  }
  const bool weights_learn = weight_oi.trainable() || (bias_o != nullptr && bias_o->trainable());
  if (!needs_backward({x_ti}, weights_learn)) return y_to;
  auto backward =
      std::make_unique<LinearBackward>(x_ti, weight_oi, bias_o, tensor::shape_of(y_to), options);
  return attach(std::move(y_to), {x_ti}, std::move(backward), weights_learn);
}

Tensor add_bias(const Tensor& x_to, WeightRef& bias_o) {
  Tensor y_to;
  {
    const tensor::NoGrad no_grad;
    y_to = x_to.add(bias_o.forward_weight());
  }
  if (!needs_backward({x_to}, bias_o.trainable())) return y_to;
  return attach(std::move(y_to), {x_to}, std::make_unique<AddBiasBackward>(bias_o),
                bias_o.trainable());
}

}  // namespace pentatron::ops
