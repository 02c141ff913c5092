// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>
#include <vector>

#include "pentatron/config/config.h"
#include "pentatron/nn/parameter_plan.h"
#include "pentatron/parallel_layers/tensor_layout.h"

// What each leaf of a GPT splits, in one table, and the parameters of any rank as pure data:
// nothing is allocated, nothing talks.
namespace pentatron::models {

// A stage's place in the pipeline.
struct StagePlace {
  std::int64_t rank = 0;
  std::int64_t size = 1;
  [[nodiscard]] bool is_first() const { return rank == 0; }
  [[nodiscard]] bool is_last() const { return rank == size - 1; }
};

// Global numbers [first, end) of a stage's layers. Config error unless the layers divide by the
// stages.
[[nodiscard]] std::pair<int, int> stage_layers(const config::ModelConfig& config, StagePlace place);

// The parameters of one rank in the order in which its stage makes them. The modules are built from
// this very plan. Config error for sizes that do not fit together or do not divide by the layout,
// naming values and options.
[[nodiscard]] nn::ParameterPlan plan_stage(const config::ModelConfig& config,
                                           const parallel_layers::TensorLayout& layout,
                                           StagePlace place);

// plans[pipeline rank][tensor rank] of the whole model.
[[nodiscard]] std::vector<std::vector<nn::ParameterPlan>> plan_parameters(
    const config::ModelConfig& config, std::int64_t tensor_size, std::int64_t pipeline_size,
    bool sequence_parallel = false);

}  // namespace pentatron::models
