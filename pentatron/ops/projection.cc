// SPDX-License-Identifier: Apache-2.0
#include "pentatron/ops/projection.h"

#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/ops/dispatch.h"
#include "pentatron/ops/op_table.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::ops {

Projection::Projection(WeightRef& weight_oi, WeightRef* bias_o, const Scope& scope)
    : weight_(weight_oi), bias_(bias_o), scope_(scope) {}

Saved Projection::save_input(const Tensor& x, std::string_view op) {
  if (!weight_.trainable()) return {};
  if (!kept_it_.data.defined()) return scope_.save(x, op);
  return scope_.save(std::exchange(kept_it_.data, Tensor()), op);
}

Tensor Projection::forward(const Tensor& x, DType out) {
  return forward_product(x, bias_, out, /*keep_input=*/true);
}

Tensor Projection::backward(const Tensor& dy, const Saved& x, DType out, bool needs_dx) {
  const bool needs_dw = x.defined();
  const OutputGradient gradient = output_gradient(dy, needs_dx, needs_dw);
  Tensor dx;
  if (needs_dx) dx = input_gradient(gradient, out);
  WeightRef* bias = trainable_bias();
  if (!needs_dw && bias == nullptr) return dx;
  WeightGradQueue::Work weight_work;
  if (needs_dw)
    weight_work = weight_grad_work(
        gradient, [x] { return x.get(); }, false);
  scope_.put([weight_work, bias, dy = bias != nullptr ? dy : Tensor(), sums = take_bias_sums()] {
    if (weight_work) weight_work();
    if (bias != nullptr) write_bias_grad(*bias, dy, sums);
  });
  return dx;
}

Tensor Projection::forward_product(const Tensor& x_ti, WeightRef* bias_o, DType out,
                                   bool keep_input) {
  const Recipe& recipe = scope_.recipe;
  tensor::Fp8Orders x_fp8;
  if (recipe.numbers == Numbers::kFp8) {
    const bool keeps = keep_input && recipe.weight_gradient && weight_.trainable();
    x_fp8 = op_table(x_ti.device())
                .fp8_orders(x_ti, {.format = tensor::Fp8Format::kE4M3,
                                   .block = recipe.activations,
                                   .rows = true,
                                   .columns = keeps,
                                   .known = recipe.input.known,
                                   .seen = recipe.input.seen});
    if (keeps) kept_it_ = x_fp8.columns_km;
  }
  return op_table(x_ti.device())
      .product_forward({.x_ti = x_ti,
                        .x_fp8_ti = x_fp8.rows_mk,
                        .weight = weight_.forward_view(forward_format(recipe)),
                        .bias_o = bias_o != nullptr ? bias_o->forward_weight() : Tensor(),
                        .out = out,
                        .recipe = recipe});
}

Projection::OutputGradient Projection::output_gradient(const Tensor& dy_to, bool needs_dx,
                                                       bool needs_dw) const {
  const Recipe& recipe = scope_.recipe;
  const bool fp8_dw = needs_dw && recipe.weight_gradient;
  if (recipe.numbers != Numbers::kFp8 || (!needs_dx && !fp8_dw)) return {dy_to};
  const tensor::Fp8Request request{.format = recipe.gradient,
                                   .block = recipe.activations,
                                   .rows = needs_dx,
                                   .columns = fp8_dw,
                                   .known = recipe.output_gradient.known,
                                   .seen = recipe.output_gradient.seen};
  return {fp8_dw ? Tensor() : dy_to, op_table(dy_to.device()).fp8_orders(dy_to, request)};
}

Tensor Projection::input_gradient(const OutputGradient& dy, DType out) const {
  const Device device = dy.dy_to.defined() ? dy.dy_to.device() : dy.fp8.rows_mk.data.device();
  return op_table(device).product_input_gradient(
      {.dy_to = dy.dy_to,
       .dy_fp8_to = dy.fp8.rows_mk,
       .weight = weight_.backward_view(backward_format(scope_.recipe)),
       .out = out,
       .recipe = scope_.recipe});
}

WeightGradQueue::Work Projection::weight_grad_work(const OutputGradient& dy,
                                                   std::function<Tensor()> x_ti,
                                                   bool x_is_whole) const {
  WeightRef* weight = &weight_;
  if (!dy.fp8.columns_km.data.defined()) {
    return [weight, dy_to = dy.dy_to, x_ti = std::move(x_ti)] {
      const Tensor x = x_ti();
      op_table(x.device())
          .product_weight_gradient({.dy_to = dy_to, .x_ti = x, .slot = weight->grad_slot()});
    };
  }
  return [weight, dy_ot = dy.fp8.columns_km, x_ti = std::move(x_ti), x_is_whole, kept = kept_it_,
          block = scope_.recipe.activations, known = scope_.recipe.input.known] {
    const OpTable& table = op_table(dy_ot.data.device());
    tensor::Fp8Tensor x_it = kept;
    if (x_is_whole) {
      x_it = table
                 .fp8_orders(x_ti(), {.format = tensor::Fp8Format::kE4M3,
                                      .block = block,
                                      .rows = false,
                                      .columns = true,
                                      .known = known})
                 .columns_km;
    } else {
      x_it.data = x_ti();
    }
    table.product_weight_gradient(
        {.dy_fp8_ot = dy_ot, .x_fp8_it = x_it, .slot = weight->grad_slot()});
  };
}

void Projection::write_bias_grad(WeightRef& bias_o, const Tensor& dy_to, const Tensor& sums_po) {
  const GradSlot slot = bias_o.grad_slot();
  PENTATRON_CHECK(slot.buffer.dim() == 1 && slot.buffer.size(0) == dy_to.size(1), kInternal,
                  "bias gradient: slot {} for an output gradient {}", tensor::describe(slot.buffer),
                  tensor::describe(dy_to));
  const OpTable& table = op_table(dy_to.device());
  // A slot in fp64 takes sums in fp64.
  const DType computed = compute_dtype(dy_to.scalar_type(), slot.buffer.scalar_type());
  if (sums_po.defined() && sums_po.scalar_type() == computed) {
    table.add_partial_sums(sums_po, slot);
  } else {
    table.column_sums(dy_to, slot);
  }
}

}  // namespace pentatron::ops
