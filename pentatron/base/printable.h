// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace pentatron {

// Text from another process or file, fit for a terminal and a log line: control characters (escape
// sequences, line ends) and bytes that are no UTF-8 become \xNN; cut after `max_bytes`.
[[nodiscard]] std::string printable(std::string_view text, std::size_t max_bytes = 4000);

}  // namespace pentatron
