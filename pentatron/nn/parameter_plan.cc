// SPDX-License-Identifier: Apache-2.0
#include "pentatron/nn/parameter_plan.h"

#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/nn/parameter.h"

namespace pentatron::nn {

void ParameterPlan::add(PlannedParameter parameter) {
  check_spec(parameter.spec);
  const bool is_new = index_.emplace(parameter.local_name, parameters_.size()).second;
  PENTATRON_CHECK(is_new, kInternal, "parameter {} is planned twice", parameter.local_name);
  parameters_.push_back(std::move(parameter));
}

const PlannedParameter* ParameterPlan::find(std::string_view local_name) const {
  const auto found = index_.find(local_name);
  return found == index_.end() ? nullptr : &parameters_[found->second];
}

const PlannedParameter& ParameterPlan::at(std::string_view local_name) const {
  const PlannedParameter* found = find(local_name);
  PENTATRON_CHECK(found != nullptr, kInternal, "parameter {} is not planned on this rank",
                  local_name);
  return *found;
}

std::int64_t ParameterPlan::num_local_elements() const {
  std::int64_t total = 0;
  for (const PlannedParameter& parameter : parameters_) {
    total += tensor::num_elements(parameter.spec.local_shape);
  }
  return total;
}

std::vector<std::pair<int, std::vector<Parameter*>>> group_by_layer(
    const ParameterPlan& plan, const std::vector<Parameter*>& parameters) {
  PENTATRON_CHECK(parameters.size() == plan.parameters().size(), kInternal,
                  "{} parameters were planned, {} made", plan.parameters().size(),
                  parameters.size());
  std::map<int, std::vector<Parameter*>> by_layer;
  for (Parameter* parameter : parameters) {
    by_layer[plan.at(parameter->local_name()).layer].push_back(parameter);
  }
  return {by_layer.begin(), by_layer.end()};
}

}  // namespace pentatron::nn
