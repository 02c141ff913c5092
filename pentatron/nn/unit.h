// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "pentatron/nn/parameter.h"
#include "pentatron/nn/step_context.h"

namespace pentatron::nn {

// A run of the model with its own events: embedding, each layer, head. Events, postponed weight
// gradients and reductions name a unit by its index on the rank: StepContext::first_unit of the
// stage plus the position in Stage::units().
struct Unit {
  std::string name;  // "embedding", "decoder.layers.3", "head"
  // Those whose gradients are complete with the unit's backward, in order of registration. A weight
  // that two units of a stage use belongs to the one whose backward comes last.
  std::vector<Parameter*> parameters;
};

// The unit's computation. It may run more than once a micro-batch and after run_unit() has
// returned, so it refers to modules only; everything of the step comes from `step`.
using UnitBody =
    std::function<std::vector<Tensor>(const std::vector<Tensor>& inputs, StepContext& step)>;

// Runs a unit of the stage: the only place of its events. `position` is that in Stage::units();
// step.scope.unit names the unit while the body runs. Inputs and outputs are floating point;
// without inputs (the embedding, which reads the batch) backward ends when all of the unit's has
// run.
[[nodiscard]] std::vector<Tensor> run_unit(int position, const std::vector<Tensor>& inputs,
                                           StepContext& step, const UnitBody& body);
// For one input (undefined: none) and one output.
[[nodiscard]] Tensor run_unit(int position, const Tensor& input, StepContext& step,
                              const std::function<Tensor(const Tensor&, StepContext&)>& body);

}  // namespace pentatron::nn
