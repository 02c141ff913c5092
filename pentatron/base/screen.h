// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "pentatron/base/terminal.h"

// The terminal that a process speaks to: lines that stay, and below them at most one line that is
// written over as work goes on. Process-wide by nature, as the terminal is. The cursor is never
// hidden and never left above the last line, so that no end of the process, SIGKILL included,
// leaves a terminal to be repaired.
namespace pentatron::screen {

// Whoever writes to the terminal holds one while it writes whole lines: the line below them is
// taken away first, and drawn again by the next tick. Never waits for long: where a terminal is
// stopped (Ctrl-S), it goes on after a second.
class Turn final {
 public:
  Turn();
  ~Turn();
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  bool locked_ = false;
};

// One whole line that stays, to standard output.
void print(std::string_view line);

// Several processes write to this terminal, and the line below may be another's: every line begins
// by clearing the terminal's line.
void share();
[[nodiscard]] bool is_shared();

// Megatron's lines, and those that tell of every cache file, are not wanted: log::print_line prints
// nothing, is_terse() is asked by those who tell details.
void set_terse(bool terse);
[[nodiscard]] bool is_terse();

// While one lives, the line below shows what `draw` makes of the terminal and a count of ticks, ten
// times a second, from a thread of its own. Only where the descriptor is an interactive terminal
// whose foreground this process is in, and for the first that lives in a process. `draw` may take
// locks, but nobody may print under them; it gives one line, which is cut to the terminal's width.
class LiveLine final {
 public:
  using Draw = std::function<std::string(const Terminal&, int tick)>;
  LiveLine(int descriptor, Draw draw);
  ~LiveLine();  // the line is gone
  LiveLine(const LiveLine&) = delete;
  LiveLine& operator=(const LiveLine&) = delete;

 private:
  bool owns_ = false;
};

// What a stop signal (Ctrl-C) prints to standard error before it ends the process (stop_cleanup.h).
// `text` is called from the thread that ends it; an empty text prints nothing. Nests.
class StopNotice final {
 public:
  explicit StopNotice(std::function<std::string(int signal)> text);
  ~StopNotice();
  StopNotice(const StopNotice&) = delete;
  StopNotice& operator=(const StopNotice&) = delete;

 private:
  std::function<std::string(int)> before_;
};
// Takes the line below away for good and prints the innermost notice.
void stop(int signal);

// Whether standard output is a pipe that nobody reads any more (| head).
[[nodiscard]] bool reader_is_gone();

}  // namespace pentatron::screen
