// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace pentatron {

// The last line of a program that failed, to standard error: "error: [rank 3] what is wrong". No
// date, which nobody needs who has just typed a command. An empty label has no brackets.
void print_error_line(std::string_view label, std::string_view message);

}  // namespace pentatron
