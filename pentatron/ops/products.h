// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/ops/recipe.h"

// The three products of a linear map y = x W^T + b, in the op table. Shapes: x [t, i], W [o, i], dy
// and y [t, o].
namespace pentatron::ops {

struct ForwardProduct {
  Tensor x_ti;
  tensor::Fp8Tensor x_fp8_ti = {};  // with an fp8 recipe: x
  WeightView weight;                // as forward_format() asks for it
  Tensor bias_o;  // epilogue: added before y is rounded where the library can; undefined: none
  DType out = DType::Float;
  Recipe recipe;
};
struct InputGradient {
  Tensor dy_to;
  tensor::Fp8Tensor dy_fp8_to = {};  // with an fp8 recipe: dy
  WeightView weight;                 // as backward_format() asks for it
  DType out = DType::Float;
  Recipe recipe;
};
struct WeightGradient {
  Tensor dy_to = {};
  Tensor x_ti = {};
  // Instead of both, in fp8: rows t rounded up to kFp8Step, zeros behind them.
  tensor::Fp8Tensor dy_fp8_ot = {};
  tensor::Fp8Tensor x_fp8_it = {};
  GradSlot slot;
};

// The forms of a weight that the forward product and the input gradient of a recipe take.
[[nodiscard]] WeightFormat forward_format(const Recipe& recipe);
[[nodiscard]] WeightFormat backward_format(const Recipe& recipe);

// Whether the products of a recipe are helped by the largest magnitude of what they read
// (tensor/known_largest.h), so that its producer shall look for it.
[[nodiscard]] bool wants_largest(const Recipe& recipe);

// The weight of an fp8 product.
[[nodiscard]] tensor::Fp8Tensor fp8_payload(const WeightView& view);

// Both implementations of the op table are products of the tensor library so far; where dtypes of
// operand and result differ, they go through blocks of rows, so that no second tensor of the larger
// one's size appears.
namespace library_products {
[[nodiscard]] Tensor forward(const ForwardProduct& in);
[[nodiscard]] Tensor input_gradient(const InputGradient& in);
void weight_gradient(const WeightGradient& in);
}  // namespace library_products

}  // namespace pentatron::ops
