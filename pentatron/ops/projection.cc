// SPDX-License-Identifier: Apache-2.0
#include "pentatron/ops/projection.h"

#include "pentatron/base/error.h"
#include "pentatron/ops/op_table.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::ops {

Projection::Projection(WeightRef& weight_oi, WeightRef* bias_o, const Scope& scope)
    : weight_(weight_oi), bias_(bias_o), scope_(scope) {}

Saved Projection::save_input(const Tensor& x, std::string_view op) const {
  return weight_.trainable() ? scope_.save(x, op) : Saved();
}

Tensor Projection::forward(const Tensor& x, DType out) { return forward_product(x, bias_, out); }

Tensor Projection::backward(const Tensor& dy, const Saved& x, DType out, bool needs_dx) {
  Tensor dx;
  if (needs_dx) dx = input_gradient(dy, out);
  WeightRef* weight = x.defined() ? &weight_ : nullptr;
  WeightRef* bias = trainable_bias();
  if (weight == nullptr && bias == nullptr) return dx;
  scope_.put([weight, bias, dy, x] {
    if (weight != nullptr) write_weight_grad(*weight, dy, x.get());
    if (bias != nullptr) write_bias_grad(*bias, dy);
  });
  return dx;
}

Tensor Projection::forward_product(const Tensor& x_ti, WeightRef* bias_o, DType out) const {
  return op_table(x_ti.device())
      .product_forward({.x_ti = x_ti,
                        .weight = weight_.forward_view(forward_format(scope_.recipe)),
                        .bias_o = bias_o != nullptr ? bias_o->forward_weight() : Tensor(),
                        .out = out,
                        .recipe = scope_.recipe});
}

Tensor Projection::input_gradient(const Tensor& dy_to, DType out) const {
  return op_table(dy_to.device())
      .product_input_gradient({.dy_to = dy_to,
                               .weight = weight_.backward_view(backward_format(scope_.recipe)),
                               .out = out,
                               .recipe = scope_.recipe});
}

void Projection::write_weight_grad(WeightRef& weight_oi, const Tensor& dy_to, const Tensor& x_ti) {
  op_table(dy_to.device())
      .product_weight_gradient({.dy_to = dy_to, .x_ti = x_ti, .slot = weight_oi.grad_slot()});
}

void Projection::write_bias_grad(WeightRef& bias_o, const Tensor& dy_to) {
  const GradSlot slot = bias_o.grad_slot();
  PENTATRON_CHECK(slot.buffer.dim() == 1 && slot.buffer.size(0) == dy_to.size(1), kInternal,
                  "bias gradient: slot {} for an output gradient {}", tensor::describe(slot.buffer),
                  tensor::describe(dy_to));
  op_table(dy_to.device()).column_sums(dy_to, slot);
}

}  // namespace pentatron::ops
