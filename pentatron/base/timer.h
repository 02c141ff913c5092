// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <string_view>
#include <vector>

// Wall-clock timing on the steady clock; knows no device (a caller that times a device waits for it
// first). Not shared between threads: each rank owns its timers.
namespace pentatron {

class Timer final {
 public:
  // Seconds since construction or the last restart.
  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  void restart() { start_ = std::chrono::steady_clock::now(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Named timers with levels 0 (coarse) to 2 (fine), as --timing-log-level selects them. A timer
// above `max_level` does nothing and costs one look-up. Misuse (start while running, stop while
// not, one name with two levels, a level outside 0 to 2) is an ErrorKind::kInternal error.
class Timers final {
 public:
  explicit Timers(int max_level);

  void start(std::string_view name, int level = 0);
  void stop(std::string_view name);
  // Seconds summed over finished and running intervals; 0 for a timer that is off or unknown. A
  // reset forgets them, a running timer goes on from now.
  [[nodiscard]] double elapsed_seconds(std::string_view name, bool reset = true);
  // Names of the active timers, in the order of their first start.
  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }

 private:
  struct Entry {
    int level = 0;
    bool running = false;
    double sum_seconds = 0;
    Timer interval;
  };
  int max_level_;
  std::map<std::string, Entry, std::less<>> entries_;
  std::vector<std::string> names_;
};

}  // namespace pentatron
