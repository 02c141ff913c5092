// SPDX-License-Identifier: Apache-2.0
#include "pentatron/transformer/mlp.h"

#include "pentatron/ops/activation.h"

namespace pentatron::transformer {

using parallel_layers::ColumnLinear;
using parallel_layers::RowLinear;

Mlp::Mlp(const parallel_layers::LeafContext& context, const nn::ParameterPlan& plan,
         const std::string& name, const MlpSpec& spec)
    : activation_(spec.activation),
      fc1_(add_child(std::make_unique<ColumnLinear>(context, plan, name + ".linear_fc1"))),
      fc2_(add_child(std::make_unique<RowLinear>(context, plan, name + ".linear_fc2"))) {}

Tensor Mlp::forward(const Tensor& x_th, nn::StepContext& step) {
  const Tensor hidden = fc1_.forward(x_th, step);
  return fc2_.forward(activation_ == Activation::kSwiglu ? ops::swiglu(hidden, step.scope)
                                                         : ops::gelu_tanh(hidden, step.scope),
                      step);
}

}  // namespace pentatron::transformer
