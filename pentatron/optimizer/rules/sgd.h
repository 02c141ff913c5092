// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "pentatron/config/config.h"
#include "pentatron/optimizer/rules/update_rule.h"
#include "pentatron/optimizer/width_scaling.h"

namespace pentatron::optimizer {

// SGD (formula: ops/adamw.h) with --sgd-momentum; `scaling` says which rate a weight has. Element
// by element. State: momentum, unless it is 0.
[[nodiscard]] std::unique_ptr<UpdateRule> make_sgd(const config::OptimizerConfig& config,
                                                   const WidthScaling& scaling);

}  // namespace pentatron::optimizer
