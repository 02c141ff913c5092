// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/ops/recipe.h"

// The three products of a linear map y = x W^T + b, in the op table. Shapes: x [t, i], W [o, i], dy
// and y [t, o].
namespace pentatron::ops {

struct ForwardProduct {
  Tensor x_ti;
  WeightView weight;  // as forward_format() asks for it
  Tensor bias_o;      // epilogue: added before y is rounded where the library can; undefined: none
  DType out = DType::Float;
  Recipe recipe;
};
struct InputGradient {
  Tensor dy_to;
  WeightView weight;  // as backward_format() asks for it
  DType out = DType::Float;
  Recipe recipe;
};
struct WeightGradient {
  Tensor dy_to;
  Tensor x_ti;
  GradSlot slot;
};

// The forms of a weight that the forward product and the input gradient of a recipe take.
[[nodiscard]] WeightFormat forward_format(const Recipe& recipe);
[[nodiscard]] WeightFormat backward_format(const Recipe& recipe);

// Both implementations of the op table are products of the tensor library so far; where dtypes of
// operand and result differ, they go through blocks of rows, so that no second tensor of the larger
// one's size appears.
namespace library_products {
[[nodiscard]] Tensor forward(const ForwardProduct& in);
[[nodiscard]] Tensor input_gradient(const InputGradient& in);
void weight_gradient(const WeightGradient& in);
}  // namespace library_products

}  // namespace pentatron::ops
