// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string_view>

namespace pentatron::inference {

// One line on a terminal that is written over as work goes on; nothing where standard error is no
// terminal, so that logs stay free of it. Not safe from several threads.
class ProgressLine final {
 public:
  ProgressLine();
  ~ProgressLine() { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // Whether a line shown now would be seen: at most four times a second.
  [[nodiscard]] bool due() const;
  void show(std::string_view text);
  // Before anything else is written to standard error.
  void clear();

 private:
  bool terminal_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace pentatron::inference
