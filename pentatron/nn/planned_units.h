// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "pentatron/nn/parameter_plan.h"
#include "pentatron/nn/unit.h"

namespace pentatron::nn {

// A rank's units and their parameters as its stages would make them, of plans alone: nothing has
// storage. For layouts of flat buffers and counts.
class PlannedUnits final {
 public:
  // `stages`: the plans of the rank's stages, in order. Every unit has parameters.
  PlannedUnits(const std::vector<ParameterPlan>& stages, const PrecisionPolicy& policy);

  [[nodiscard]] const std::vector<Unit>& units() const { return units_; }
  // Of the unit at the same index: PlannedParameter::layer.
  [[nodiscard]] const std::vector<int>& layers() const { return layers_; }

 private:
  std::vector<std::unique_ptr<Parameter>> parameters_;
  std::vector<Unit> units_;
  std::vector<int> layers_;
};

}  // namespace pentatron::nn
