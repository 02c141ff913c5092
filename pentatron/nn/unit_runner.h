// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "pentatron/nn/unit.h"

namespace pentatron::nn {

// Does the computation of units in another way than by calling their bodies. A sink of unit events
// (StepContext::events) that is one too is asked by run_unit(), between the unit's borders.
class UnitRunner {
 public:
  virtual ~UnitRunner() = default;
  // What body(inputs, step) gives, joined to the same graph: with the same bits and gradients.
  // step.scope.unit names the unit.
  [[nodiscard]] virtual std::vector<Tensor> run(const std::vector<Tensor>& inputs,
                                                StepContext& step, const UnitBody& body) = 0;
};

}  // namespace pentatron::nn
