// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/config/config.h"
#include "pentatron/tensor/precision.h"

namespace pentatron::training {

// The dtypes of a run: of its precision, with --output-logit-dtype, --grad-reduce-in-bf16 and the
// options of --use-precision-aware-optimizer (moments: optimizer/state_plan.h).
[[nodiscard]] PrecisionPolicy run_policy(const config::RunConfig& config);

}  // namespace pentatron::training
