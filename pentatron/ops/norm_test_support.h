// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/ops/norm.h"

// Only tests include it.
namespace pentatron::ops::testing {

// The sum and its norm by one op or by two; with a bias layer norm, else RMS norm.
inline AddedNorm added_norm(bool one_pass, bool with_bias, const Tensor& x, const Tensor& delta,
                            WeightRef& weight, WeightRef& bias) {
  constexpr double kEps = 1e-5;
  if (one_pass) {
    return with_bias ? add_layer_norm(x, delta, weight, bias, kEps, DType::Float)
                     : add_rms_norm(x, delta, weight, kEps, DType::Float);
  }
  AddedNorm out;
  out.sum_th = x.add(delta);
  out.norm_th = with_bias ? layer_norm(out.sum_th, weight, bias, kEps, DType::Float)
                          : rms_norm(out.sum_th, weight, kEps, DType::Float);
  return out;
}

}  // namespace pentatron::ops::testing
