// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/tensor/weight_grad_queue.h"
#include "pentatron/tensor/weight_ref.h"

namespace pentatron::ops {

struct LinearOptions {
  WeightGradQueue* weight_grads = nullptr;  // null: at once
  int layer = -1;                           // layer number for the queue
};

// y_to = x_ti @ weight_oi^T (+ bias_o); x and y in the compute dtype, products accumulated in fp32
// (fp64 for fp64). The weight gradient dy^T @ x goes straight into the slot (one product with
// accumulate, no weight-sized temporary when dtypes allow). bias may be null. Shapes that do not
// fit: kInternal.
[[nodiscard]] Tensor linear(const Tensor& x_ti, WeightRef& weight_oi, WeightRef* bias_o,
                            const LinearOptions& options);

// y_to + bias_o; gradient of the bias is the column sum.
[[nodiscard]] Tensor add_bias(const Tensor& x_to, WeightRef& bias_o);

}  // namespace pentatron::ops
