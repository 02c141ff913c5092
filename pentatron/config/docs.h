// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace pentatron::config {

// The text of docs/megatron_options.md, without the last line's end: every known option with class,
// default, meaning or reason, and test.
[[nodiscard]] std::string options_markdown();

}  // namespace pentatron::config
