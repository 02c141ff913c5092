// SPDX-License-Identifier: Apache-2.0
#include "pentatron/base/error_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "pentatron/base/screen.h"
#include "pentatron/base/terminal.h"

namespace pentatron {

void print_error_line(std::string_view label, std::string_view message) {
  const Terminal terminal = look_at_terminal(STDERR_FILENO);
  const screen::Turn turn;
  fmt::print(stderr, "{} {}{}\n", toned("error:", Tone::kRed, terminal),
             label.empty() ? "" : fmt::format("[{}] ", label), message);
  (void)std::fflush(stderr);
}

}  // namespace pentatron
