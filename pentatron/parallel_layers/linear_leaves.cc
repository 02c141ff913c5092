// SPDX-License-Identifier: Apache-2.0
#include "pentatron/ops/activation.h"
#include "pentatron/ops/linear.h"
#include "pentatron/parallel_layers/column_linear.h"
#include "pentatron/parallel_layers/delayed_scales.h"
#include "pentatron/parallel_layers/make_parameter.h"
#include "pentatron/parallel_layers/regions.h"
#include "pentatron/parallel_layers/row_linear.h"
#include "pentatron/parallel_layers/split_linear.h"

namespace pentatron::parallel_layers {
namespace {

// The step's, with the map's own scales where it has some.
ops::Scope scope_with(const DelayedScales* scales, const nn::StepContext& step) {
  ops::Scope scope = step.scope;
  if (scales != nullptr) scope.recipe = scales->applied(scope.recipe, step);
  return scope;
}

}  // namespace

ColumnLinear::ColumnLinear(const LeafContext& context, const nn::ParameterPlan& plan,
                           const std::string& name, const AdapterForm& adapters)
    : context_(context),
      weight_(&add_parameter(make_parameter(context, plan, name + ".weight"))),
      bias_(nullptr),
      adapter_(nullptr) {
  auto bias = make_parameter_if_planned(context, plan, name + ".bias");
  if (bias != nullptr) bias_ = &add_parameter(std::move(bias));
  auto adapter = Adapter::make(context, plan, name, adapters, *weight_, bias_);
  if (adapter != nullptr) adapter_ = &add_child(std::move(adapter));
  if (context.delayed_scaling()) {
    scales_ = &add_child(std::make_unique<DelayedScales>(context, name));
  }
}

Tensor ColumnLinear::forward(const Tensor& x_ti, nn::StepContext& step) {
  const ops::Scope scope = scope_with(scales_, step);
  if (adapter_ != nullptr) {
    nn::StepContext own = step;
    own.scope = scope;
    return adapter_->split_outputs(x_ti, own);
  }
  return ops::linear(x_ti, split_outputs(context_, *weight_, bias_, scope));
}

Tensor ColumnLinear::forward_activation(const Tensor& x_ti, Activation kind,
                                        nn::StepContext& step) {
  if (adapter_ != nullptr) return ops::activation(kind, forward(x_ti, step), step.scope);
  const ops::Scope scope = scope_with(scales_, step);
  return ops::linear_activation(x_ti, split_outputs(context_, *weight_, bias_, scope), kind, scope);
}

std::vector<Tensor> ColumnLinear::forward_heads(const Tensor& x_ti, std::int64_t head_dim,
                                                nn::StepContext& step) {
  std::vector<std::int64_t> widths;
  for (const nn::ShardPart& part : weight_->spec().parts) widths.push_back(part.local_rows);
  return split_columns(forward(x_ti, step), widths, head_dim);
}

std::int64_t ColumnLinear::part_width(std::size_t index) const {
  return weight_->spec().parts.at(index).local_rows;
}

std::int64_t ColumnLinear::part_total(std::size_t index) const {
  return weight_->spec().parts.at(index).logical_shape.at(0);
}

std::int64_t ColumnLinear::part_begin(std::size_t index) const {
  return weight_->spec().parts.at(index).box.offset.at(0);
}

RowLinear::RowLinear(const LeafContext& context, const nn::ParameterPlan& plan,
                     const std::string& name, const AdapterForm& adapters)
    : context_(context),
      weight_(&add_parameter(make_parameter(context, plan, name + ".weight"))),
      bias_(nullptr),
      adapter_(nullptr) {
  auto bias = make_parameter_if_planned(context, plan, name + ".bias");
  if (bias != nullptr) bias_ = &add_parameter(std::move(bias));
  auto adapter = Adapter::make(context, plan, name, adapters, *weight_, bias_);
  if (adapter != nullptr) adapter_ = &add_child(std::move(adapter));
  if (context.delayed_scaling()) {
    scales_ = &add_child(std::make_unique<DelayedScales>(context, name));
  }
}

Tensor RowLinear::forward(const Tensor& x_ti, nn::StepContext& step) {
  const ops::Scope scope = scope_with(scales_, step);
  if (adapter_ != nullptr) {
    nn::StepContext own = step;
    own.scope = scope;
    return adapter_->split_inputs(x_ti, own);
  }
  return ops::linear(x_ti, split_inputs(context_, *weight_, bias_, scope));
}

}  // namespace pentatron::parallel_layers
