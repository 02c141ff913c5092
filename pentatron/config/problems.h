// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pentatron/base/error.h"

namespace pentatron::config {

// Collects everything that is wrong with the options, so that the user reads it all at once.
class Problems final {
 public:
  // One line. `dest` names the destination it is about, so that later checks do not complain about
  // the same value again.
  void add(std::string line, std::string_view dest = {}) {
    lines_.push_back(std::move(line));
    if (!dest.empty()) dests_.emplace(dest);
  }

  [[nodiscard]] bool empty() const { return lines_.empty(); }
  [[nodiscard]] bool about(std::string_view dest) const { return dests_.contains(dest); }
  [[nodiscard]] const std::vector<std::string>& lines() const { return lines_; }

  // Throws one error of kind config with a line for each problem, if there is any.
  void throw_if_any() const {
    if (lines_.empty()) return;
    if (lines_.size() == 1) throw Error(ErrorKind::kConfig, lines_.front(), __FILE__, __LINE__);
    std::string text = fmt::format("{} problems with the options:", lines_.size());
    for (const std::string& line : lines_) text += "\n  " + line;
    throw Error(ErrorKind::kConfig, text, __FILE__, __LINE__);
  }

 private:
  std::vector<std::string> lines_;
  std::set<std::string, std::less<>> dests_;
};

}  // namespace pentatron::config
