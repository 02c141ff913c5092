// SPDX-License-Identifier: Apache-2.0
#include "pentatron/parallel_layers/linear_leaf.h"

#include <memory>
#include <utility>

#include "pentatron/parallel_layers/delayed_scales.h"
#include "pentatron/parallel_layers/make_parameter.h"

namespace pentatron::parallel_layers {

LinearLeaf::LinearLeaf(const LeafContext& context, const nn::ParameterPlan& plan,
                       const std::string& name, const AdapterForm& adapters)
    : context_(context), weight_(&add_parameter(make_parameter(context, plan, name + ".weight"))) {
  auto bias = make_parameter_if_planned(context, plan, name + ".bias");
  if (bias != nullptr) bias_ = &add_parameter(std::move(bias));
  auto adapter = Adapter::make(context, plan, name, adapters, *weight_, bias_);
  if (adapter != nullptr) adapter_ = &add_child(std::move(adapter));
  if (context.delayed_scaling()) {
    scales_ = &add_child(std::make_unique<DelayedScales>(context, name));
  }
}

ops::Scope LinearLeaf::scope(const nn::StepContext& step) const {
  ops::Scope scope = step.scope;
  if (scales_ != nullptr) scope.recipe = scales_->applied(scope.recipe, step);
  return scope;
}

}  // namespace pentatron::parallel_layers
