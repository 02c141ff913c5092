// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace pentatron::parallel_layers {

// Which normalisation a model has.
struct NormForm {
  // LayerNorm: weight and bias; RMSNorm: weight (--normalization); L2Norm: divided by the root mean
  // square, without weights.
  std::string_view kind = "LayerNorm";
  double epsilon = 1e-5;
  bool zero_centred = false;  // the weight is used as 1 + weight and starts at 0
};

}  // namespace pentatron::parallel_layers
