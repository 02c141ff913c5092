// SPDX-License-Identifier: Apache-2.0
#include "pentatron/nn/step_scalars.h"

#include <algorithm>

namespace pentatron::nn {

void StepScalars::set(std::string_view name, double value, ScalarKind kind) {
  const auto found = std::find_if(values_.begin(), values_.end(),
                                  [&](const StepScalar& scalar) { return scalar.name == name; });
  if (found == values_.end()) {
    values_.push_back({std::string(name), value, kind});
  } else {
    *found = {std::string(name), value, kind};
  }
}

std::optional<double> StepScalars::find(std::string_view name) const {
  for (const StepScalar& scalar : values_) {
    if (scalar.name == name) return scalar.value;
  }
  return std::nullopt;
}

}  // namespace pentatron::nn
