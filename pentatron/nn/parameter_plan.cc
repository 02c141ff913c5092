// SPDX-License-Identifier: Apache-2.0
#include "pentatron/nn/parameter_plan.h"

#include <utility>

#include "pentatron/base/error.h"

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

}  // namespace pentatron::nn
