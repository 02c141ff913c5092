// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "pentatron/nn/unit.h"

namespace pentatron::nn {

// Runs a part of the model without keeping what its backward needs: only `inputs` stay, and
// backward runs `body` again (phase kRecompute, all else of the step as it was) before it goes
// through it. Gradients have the bits of a run that keeps everything, since randomness is keyed.
// The body may hold whole units, whose forward events come again, or a piece of one. It refers to
// modules only. Inputs and outputs are floating point, at least one input. Without gradients the
// body simply runs. Inputs are saved as `saves` decides, which outlives the graph; null: as the
// step's scope does.
[[nodiscard]] std::vector<Tensor> recomputed(const std::vector<Tensor>& inputs, StepContext& step,
                                             const UnitBody& body, SavePolicy* saves = nullptr);
// For one input and one output; `when` false: the body simply runs.
[[nodiscard]] Tensor recomputed(bool when, const Tensor& input, StepContext& step,
                                const std::function<Tensor(const Tensor&, StepContext&)>& body,
                                SavePolicy* saves = nullptr);

}  // namespace pentatron::nn
