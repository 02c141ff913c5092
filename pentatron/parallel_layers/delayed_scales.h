// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "pentatron/nn/module.h"
#include "pentatron/ops/recipe.h"
#include "pentatron/parallel_layers/leaf_context.h"

namespace pentatron::parallel_layers {

// The scales of one linear map in fp8 under delayed scaling (arXiv 2209.05433): inputs and output
// gradients are scaled by the largest values of earlier steps, over all micro-batches and ranks.
// Weights are scaled by their own, since they are quantised once a step. The history is a Buffer:
// it moves with a committed step, so that micro-batches and a step that runs again see one scale,
// and goes into checkpoints. Before the first step a tensor's own largest value is taken.
class DelayedScales final : public nn::Module {
 public:
  // `name`: of the linear map, global. `context` has delayed scaling.
  DelayedScales(const LeafContext& context, const std::string& name);

  // `recipe` with this map's scales; as it is unless in fp8.
  [[nodiscard]] ops::Recipe applied(ops::Recipe recipe, const nn::StepContext& step) const;

 private:
  void commit_own(const nn::StepOutcome& outcome) override;

  DelayedScaling options_;
  std::string scalar_;
  // [2, 1 + steps]: of inputs and of output gradients the value that counts now, then what was
  // seen, the latest first.
  nn::Buffer* history_;
};

}  // namespace pentatron::parallel_layers
