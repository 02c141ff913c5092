// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/config/config.h"
#include "pentatron/config/problems.h"

namespace pentatron::config {

// How samples are shared by ranks: rows that do not divide by --context-parallel-size and
// --tensor-model-parallel-size, wrong --cp-comm-type and --hierarchical-context-parallel-sizes, and
// heads that do not divide where ranks exchange them. Heads and query groups are resolved.
void check_context_parallel(const ModelConfig& model, const ParallelConfig& parallel,
                            Problems& problems);

// What --hybrid-context-parallel stands on.
void check_dynamic_context(const RunConfig& config, Problems& problems);

}  // namespace pentatron::config
