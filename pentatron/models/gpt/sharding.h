// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "pentatron/config/config.h"
#include "pentatron/config/pipeline_layout.h"
#include "pentatron/nn/parameter_plan.h"
#include "pentatron/parallel_layers/tensor_layout.h"
#include "pentatron/transformer/layer_spec.h"

// What each leaf of a GPT splits, in one table, and the parameters of any rank as pure data:
// no memory is allocated and no rank communicates.
namespace pentatron::models {

// The parameters of one rank in the order in which its stage makes them. The modules are built from
// this very plan. Config error for sizes that do not fit together or do not divide by the layout,
// naming values and options.
[[nodiscard]] nn::ParameterPlan plan_stage(const config::ModelConfig& config,
                                           const parallel_layers::TensorLayout& layout,
                                           const config::StagePlan& stage);
// With other layers than the options say, one spec for each of the model.
[[nodiscard]] nn::ParameterPlan plan_stage(const config::ModelConfig& config,
                                           const parallel_layers::TensorLayout& layout,
                                           const config::StagePlan& stage,
                                           const std::vector<transformer::LayerSpec>& specs);

// plans[pipeline rank][tensor rank] of the whole model in equal stages.
[[nodiscard]] std::vector<std::vector<nn::ParameterPlan>> plan_parameters(
    const config::ModelConfig& config, std::int64_t tensor_size, std::int64_t pipeline_size,
    bool sequence_parallel = false);

}  // namespace pentatron::models
