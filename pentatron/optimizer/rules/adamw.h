// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "pentatron/config/config.h"
#include "pentatron/optimizer/rules/update_rule.h"
#include "pentatron/optimizer/width_scaling.h"

namespace pentatron::optimizer {

// AdamW (formula: ops/adamw.h) with --adam-beta1, --adam-beta2 and --adam-eps; `scaling` says which
// rate and eps a weight has. Element by element: any cut of a parameter gives the same bits. State:
// exp_avg, exp_avg_sq. Where one of these or the main parameter is bf16 it is rounded by draws of
// `seed`, the step and the element (ops/narrow_adamw.h).
[[nodiscard]] std::unique_ptr<UpdateRule> make_adamw(const config::OptimizerConfig& config,
                                                     const WidthScaling& scaling,
                                                     std::uint64_t seed);

}  // namespace pentatron::optimizer
