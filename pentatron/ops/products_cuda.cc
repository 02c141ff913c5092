// SPDX-License-Identifier: Apache-2.0
#include "pentatron/ops/products.h"

#include "pentatron/ops/cuda_ops.h"

namespace pentatron::ops {

Tensor cuda::product_forward(const ForwardProduct& in) { return library_products::forward(in); }

Tensor cuda::product_input_gradient(const InputGradient& in) {
  return library_products::input_gradient(in);
}

void cuda::product_weight_gradient(const WeightGradient& in) {
  library_products::weight_gradient(in);
}

}  // namespace pentatron::ops
