// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "pentatron/config/config.h"
#include "pentatron/optimizer/rules/update_rule.h"

namespace pentatron::optimizer {

// SGD (formula: ops/adamw.h) with --sgd-momentum. Element by element. State: momentum, unless it is
// 0.
[[nodiscard]] std::unique_ptr<UpdateRule> make_sgd(const config::OptimizerConfig& config);

}  // namespace pentatron::optimizer
