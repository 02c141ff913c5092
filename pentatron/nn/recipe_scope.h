// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "pentatron/nn/step_context.h"

namespace pentatron::nn {

// While it lives, linears of this context are made by `recipe`, in training and evaluation;
// generation stays in the compute dtype, since its few rows gain nothing.
class RecipeScope {
 public:
  RecipeScope(StepContext& step, const ops::Recipe& recipe)
      : step_(step), before_(step.scope.recipe) {
    if (step.training() || step.phase == Phase::kEvaluate) step.scope.recipe = recipe;
  }
  ~RecipeScope() { step_.scope.recipe = before_; }
  RecipeScope(const RecipeScope&) = delete;
  RecipeScope& operator=(const RecipeScope&) = delete;

 private:
  StepContext& step_;
  ops::Recipe before_;
};

}  // namespace pentatron::nn
