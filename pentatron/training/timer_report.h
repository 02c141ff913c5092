// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pentatron/base/timer.h"
#include "pentatron/comm/group.h"

// Megatron's lines of timers (--timing-log-level, --timing-log-option).
namespace pentatron::training {

// Names of level 1 and 2 that are printed after a log line, in that order. Megatron's
// optimizer-copy-to-main-grad is not among them: backward writes into the main gradients at once.
[[nodiscard]] std::span<const std::string_view> step_timers();

// What one timer measured: seconds of every rank, 0 where the rank has no such timer.
struct TimerReading {
  std::string name;
  std::vector<double> seconds;
  // Over the ranks that have it.
  [[nodiscard]] double least() const;
  [[nodiscard]] double most() const;
};

// Reads and resets the named timers on every rank (collective over `world`). Timers that no rank
// has are left out.
[[nodiscard]] std::vector<TimerReading> read_timers(Timers& timers, comm::Group& world,
                                                    std::span<const std::string_view> names);

// The block without its last line's end; empty when there is no reading. `option`: "max", "minmax"
// or "all"; times are divided by `count` and shown in milliseconds.
[[nodiscard]] std::string format_timers(std::span<const TimerReading> readings,
                                        std::string_view option, double count);

}  // namespace pentatron::training
