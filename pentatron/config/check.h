// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "pentatron/config/validate.h"

namespace pentatron::config {

struct CheckReport {
  std::string text;   // without the last line's end
  int exit_code = 0;  // 0, or the code of a config error
};

// What --check-options prints: the layout, what is always so and the values that do not have their
// default, with their origins; or every problem.
[[nodiscard]] CheckReport check_options(const ParseRequest& request,
                                        Purpose purpose = Purpose::kTrain);

}  // namespace pentatron::config
