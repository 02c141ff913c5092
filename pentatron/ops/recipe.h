// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/tensor/weight_ref.h"

namespace pentatron::ops {

// How the products of linears are made. With fp8, inputs and weights are e4m3 in the forward
// product and the gradient of the input, the output's gradient is `gradient`, and the weight's
// gradient is made in the compute dtype from what was saved.
struct Recipe {
  Numbers numbers = Numbers::kCompute;
  tensor::Fp8Format gradient = tensor::Fp8Format::kE5M2;
  // Values that share a scale: of inputs and output gradients, of weights.
  tensor::ScaleBlock activations = {};
  tensor::ScaleBlock weights = {};
};

}  // namespace pentatron::ops
