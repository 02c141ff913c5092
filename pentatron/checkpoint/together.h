// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "pentatron/comm/group.h"

namespace pentatron::checkpoint {

// Every rank of `world` runs `work`; all ranks get all results, in order of rank. If one fails, all
// throw its error, with its kind and "<failure>: rank N: <reason>" (the bare reason when `failure`
// is empty), after rank 0 has run `clean_up` (which does not throw). Collective.
[[nodiscard]] std::vector<std::string> run_together(
    comm::Group& world, std::string_view failure, const std::function<std::string()>& work,
    const std::function<void()>& clean_up = [] {});

}  // namespace pentatron::checkpoint
