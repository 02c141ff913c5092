// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "pentatron/config/config.h"
#include "pentatron/models/gpt/sharding.h"
#include "pentatron/nn/stage.h"
#include "pentatron/parallel_layers/leaf_context.h"

namespace pentatron::models {

// The model kind that the options ask for.
[[nodiscard]] std::string_view model_kind(const config::ModelConfig& config);
// A stage of a model kind. `config` is resolved. An unknown
// kind or sizes that do not fit: config error.
[[nodiscard]] std::unique_ptr<nn::Stage> make_stage(std::string_view kind,
                                                    const config::ModelConfig& config,
                                                    const parallel_layers::LeafContext& context,
                                                    const config::StagePlan& plan);
// The kinds that make_stage() knows.
[[nodiscard]] std::vector<std::string_view> model_kinds();

}  // namespace pentatron::models
