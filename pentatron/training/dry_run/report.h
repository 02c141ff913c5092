// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "pentatron/training/dry_run/dry_run.h"

namespace pentatron::training::dry_run {

// Parameters, and memory of the asked rank by kind, in a few lines, without the last one's end.
[[nodiscard]] std::string short_text(const DryRun& run);
// Lines of at most 80 columns, without the last one's end.
[[nodiscard]] std::string to_text(const DryRun& run);
[[nodiscard]] nlohmann::json to_json(const DryRun& run);

}  // namespace pentatron::training::dry_run
