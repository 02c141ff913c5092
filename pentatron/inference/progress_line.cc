// SPDX-License-Identifier: Apache-2.0
#include "pentatron/inference/progress_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace pentatron::inference {

ProgressLine::ProgressLine() : terminal_(::isatty(STDERR_FILENO) == 1) {}

bool ProgressLine::due() const {
  constexpr std::chrono::milliseconds kInterval{250};
  return terminal_ && std::chrono::steady_clock::now() - last_ >= kInterval;
}

void ProgressLine::show(std::string_view text) {
  if (!due()) return;
  // Back to the column 1, the text, and nothing behind it.
  fmt::print(stderr, "\r{}\x1b[K", text);
  (void)std::fflush(stderr);
  shown_ = true;
  last_ = std::chrono::steady_clock::now();
}

void ProgressLine::clear() {
  if (!shown_) return;
  fmt::print(stderr, "\r\x1b[K");
  (void)std::fflush(stderr);
  shown_ = false;
}

}  // namespace pentatron::inference
