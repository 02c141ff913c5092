// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "pentatron/config/parser.h"

namespace pentatron::training {

// What --check-options finds besides the options themselves: files that are not there, and what the
// run would come to.
struct RunCheck {
  std::string text;  // lines, without the last one's end
  bool files_missing = false;
  bool refused = false;  // the options do not fit each other or the tokenizer
};
// Opens no corpus and makes nothing. Figures that cannot be known (no tokenizer's files, a layout
// too large to be planned) are said to be so.
[[nodiscard]] RunCheck check_run(const config::ParsedOptions& options);

}  // namespace pentatron::training
