// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace pentatron::parallel_layers {

// LayerNorm has weight and bias, RMSNorm a weight; L2Norm divides by the root mean square and has
// none.
enum class NormKind { kLayerNorm, kRmsNorm, kL2Norm };

// Which normalisation a model has.
struct NormForm {
  NormKind kind = NormKind::kLayerNorm;
  double epsilon = 1e-5;
  bool zero_centred = false;  // the weight is used as 1 + weight and starts at 0
};

}  // namespace pentatron::parallel_layers
