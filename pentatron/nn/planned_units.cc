// SPDX-License-Identifier: Apache-2.0
#include "pentatron/nn/planned_units.h"

#include <fmt/format.h>

namespace pentatron::nn {

PlannedUnits::PlannedUnits(const std::vector<ParameterPlan>& stages,
                           const PrecisionPolicy& policy) {
  for (const ParameterPlan& stage : stages) {
    const std::size_t first_unit = units_.size();
    for (const PlannedParameter& planned : stage.parameters()) {
      if (units_.size() == first_unit || layers_.back() != planned.layer) {
        units_.push_back({fmt::format("layer {}", planned.layer), {}});
        layers_.push_back(planned.layer);
      }
      parameters_.push_back(std::make_unique<Parameter>(planned.local_name, planned.spec, policy));
      units_.back().parameters.push_back(parameters_.back().get());
    }
  }
}

}  // namespace pentatron::nn
