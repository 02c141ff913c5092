// SPDX-License-Identifier: Apache-2.0
#include "pentatron/parallel_layers/row_linear.h"

#include "pentatron/ops/linear.h"
#include "pentatron/parallel_layers/split_linear.h"

namespace pentatron::parallel_layers {

Tensor RowLinear::forward(const Tensor& x_ti, nn::StepContext& step) {
  const ops::Scope scope = this->scope(step);
  if (adapter() != nullptr) {
    nn::StepContext own = step;
    own.scope = scope;
    return adapter()->split_inputs(x_ti, own);
  }
  return ops::linear(x_ti, split_inputs(context(), weight(), bias(), scope));
}

}  // namespace pentatron::parallel_layers
