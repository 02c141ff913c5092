// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/tensor/weight_ref.h"

namespace pentatron::ops {

// Delayed scaling of one tensor: tensor::Fp8Request's fields; undefined: its own largest value.
struct Fp8History {
  Tensor known = {};
  Tensor seen = {};
};

// How the products of linears are made. With fp8, inputs and weights are e4m3 and the output's
// gradient is `gradient`, each quantised once for all products that read it; the weight's gradient
// is made from fp8 too, or in the compute dtype from what was saved.
struct Recipe {
  Numbers numbers = Numbers::kCompute;
  tensor::Fp8Format gradient = tensor::Fp8Format::kE5M2;
  // Values that share a scale: of inputs and output gradients, of weights.
  tensor::ScaleBlock activations = {};
  tensor::ScaleBlock weights = {};
  bool weight_gradient = false;  // in fp8
  Fp8History input = {};
  Fp8History output_gradient = {};
};

}  // namespace pentatron::ops
