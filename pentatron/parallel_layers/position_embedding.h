// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "pentatron/nn/module.h"
#include "pentatron/nn/parameter_plan.h"
#include "pentatron/parallel_layers/leaf_context.h"

namespace pentatron::parallel_layers {

// Learned absolute positions, a whole table on every rank, looked up for this rank's token rows: ->
// [local rows, hidden]. A position beyond the table is a config error.
class PositionEmbedding final : public nn::Module {
 public:
  PositionEmbedding(const LeafContext& context, const nn::ParameterPlan& plan,
                    const std::string& name);
  [[nodiscard]] Tensor forward(nn::StepContext& step);

 private:
  LeafContext context_;
  nn::Parameter* weight_;
};

}  // namespace pentatron::parallel_layers
