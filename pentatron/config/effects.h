// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/config/parser.h"

namespace pentatron::config {

// The values that a user set (file, command line, --set) and that have no effect beside the other
// values, with the reason. Reads unresolved values.
[[nodiscard]] std::vector<OptionNote> values_without_effect(const RunConfig& config,
                                                            const Origins& origins);

// Refuses two sources of data at once: one of them would be left out, and not by the user's choice.
void check_data_sources(const RunConfig& config, const Origins& origins, Problems& problems);

// Refuses options of `always_so` that ask for fp32 gradients beside one that asks for bf16.
void check_wide_gradients(const RunConfig& config, const std::vector<OptionNote>& always_so,
                          Problems& problems);

}  // namespace pentatron::config
