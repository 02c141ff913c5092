// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "pentatron/config/config.h"
#include "pentatron/optimizer/rules/update_rule.h"
#include "pentatron/optimizer/width_scaling.h"

namespace pentatron::optimizer {

// AdamW (formula: ops/adamw.h) with --adam-beta1, --adam-beta2 and --adam-eps; `scaling` says which
// rate and eps a weight has. Element by element: any cut of a parameter gives the same bits. State:
// exp_avg, exp_avg_sq.
[[nodiscard]] std::unique_ptr<UpdateRule> make_adamw(const config::OptimizerConfig& config,
                                                     const WidthScaling& scaling);

}  // namespace pentatron::optimizer
