// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "pentatron/base/screen.h"
#include "pentatron/base/timer.h"

namespace pentatron {

// How far a long piece of work is. On a terminal (standard error) a bar with rate and time left;
// elsewhere a log line every few seconds, or nothing. Safe from several threads.
class ProgressLine final {
 public:
  struct Options {
    std::string what;          // "imported"
    std::string unit;          // "documents"; "bytes" are shown as kB, MB, ...
    double line_seconds = 10;  // between log lines where there is no terminal; 0: none
  };
  explicit ProgressLine(Options options);
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // There is more to do than was known; without any, the end is not known.
  void expect(std::int64_t amount);
  void add(std::int64_t amount);
  // Where the share of the work is not counted in its unit: 0 to 1.
  void set_share(double share);
  // Shown behind: "1.2k tokens/s".
  void note(std::string text);

  // The line as it stands after `seconds`, for tests.
  [[nodiscard]] std::string text(const Terminal& terminal, int tick, double seconds) const;

 private:
  [[nodiscard]] std::string amount_text(std::int64_t amount) const;

  Options options_;
  mutable std::mutex mutex_;  // of what follows
  std::int64_t done_ = 0;
  std::int64_t expected_ = 0;
  double share_ = -1;
  std::string note_;
  double told_ = 0;  // seconds
  Timer timer_;
  std::unique_ptr<screen::LiveLine> line_;  // last: its thread reads all above
};

// The same for work that tells of itself in whole texts: the newest beside a spinner on a terminal,
// a log line each elsewhere.
class StatusText final {
 public:
  StatusText();
  StatusText(const StatusText&) = delete;
  StatusText& operator=(const StatusText&) = delete;

  void show(const std::string& text);

 private:
  std::mutex mutex_;
  std::string text_;
  std::unique_ptr<screen::LiveLine> line_;
};

}  // namespace pentatron
