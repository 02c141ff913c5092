// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

#include "pentatron/config/config.h"
#include "pentatron/nn/parameter.h"

namespace pentatron::training {

// Whether `pattern` describes the whole of `name`: '*' stands for any characters, '?' for one.
[[nodiscard]] bool matches(std::string_view pattern, std::string_view name);

// Freezes those of `parameters` that --freeze-parameters names: they get no gradient and no
// optimizer state. A pattern describes a parameter's name
// ("decoder.layers.3.mlp.linear_fc1.weight") or those of all its parts. kConfig for a pattern that
// describes nothing in the whole model or only some parts of a parameter (queries without keys),
// and where nothing is left to train.
void freeze_parameters(const config::RunConfig& config,
                       const std::vector<nn::Parameter*>& parameters);

}  // namespace pentatron::training
