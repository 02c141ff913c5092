// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "pentatron/nn/parameter.h"
#include "pentatron/nn/parameter_plan.h"
#include "pentatron/parallel_layers/leaf_context.h"

namespace pentatron::parallel_layers {

// The planned parameter of this name, allocated; null when it is not planned.
[[nodiscard]] inline std::unique_ptr<nn::Parameter> make_parameter_if_planned(
    const LeafContext& context, const nn::ParameterPlan& plan, const std::string& name) {
  const nn::PlannedParameter* planned = plan.find(name);
  if (planned == nullptr) return nullptr;
  return std::make_unique<nn::Parameter>(name, planned->spec, context.policy(), context.device());
}

// As above; a name that is not planned is an internal error.
[[nodiscard]] inline std::unique_ptr<nn::Parameter> make_parameter(const LeafContext& context,
                                                                   const nn::ParameterPlan& plan,
                                                                   const std::string& name) {
  return std::make_unique<nn::Parameter>(name, plan.at(name).spec, context.policy(),
                                         context.device());
}

}  // namespace pentatron::parallel_layers
