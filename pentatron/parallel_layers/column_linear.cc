// SPDX-License-Identifier: Apache-2.0
#include "pentatron/parallel_layers/column_linear.h"

#include "pentatron/ops/activation.h"
#include "pentatron/ops/linear.h"
#include "pentatron/parallel_layers/regions.h"
#include "pentatron/parallel_layers/split_linear.h"

namespace pentatron::parallel_layers {

Tensor ColumnLinear::forward(const Tensor& x_ti, nn::StepContext& step) {
  const ops::Scope scope = this->scope(step);
  if (adapter() != nullptr) {
    nn::StepContext own = step;
    own.scope = scope;
    return adapter()->split_outputs(x_ti, own);
  }
  return ops::linear(x_ti, split_outputs(context(), weight(), bias(), scope));
}

Tensor ColumnLinear::forward_activation(const Tensor& x_ti, Activation kind,
                                        nn::StepContext& step) {
  if (adapter() != nullptr) return ops::activation(kind, forward(x_ti, step), step.scope);
  const ops::Scope scope = this->scope(step);
  return ops::linear_activation(x_ti, split_outputs(context(), weight(), bias(), scope), kind,
                                scope);
}

std::vector<Tensor> ColumnLinear::forward_heads(const Tensor& x_ti, std::int64_t head_dim,
                                                nn::StepContext& step) {
  std::vector<std::int64_t> widths;
  for (const nn::ShardPart& part : weight().spec().parts) widths.push_back(part.local_rows);
  return split_columns(forward(x_ti, step), widths, head_dim);
}

std::int64_t ColumnLinear::part_width(std::size_t index) const {
  return weight().spec().parts.at(index).local_rows;
}

std::int64_t ColumnLinear::part_total(std::size_t index) const {
  return weight().spec().parts.at(index).logical_shape.at(0);
}

std::int64_t ColumnLinear::part_begin(std::size_t index) const {
  return weight().spec().parts.at(index).box.offset.at(0);
}

}  // namespace pentatron::parallel_layers
