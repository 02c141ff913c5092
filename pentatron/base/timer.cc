// SPDX-License-Identifier: Apache-2.0
#include "pentatron/base/timer.h"

#include "pentatron/base/error.h"

namespace pentatron {

namespace {
constexpr int kFinestLevel = 2;
}

Timers::Timers(int max_level) : max_level_(max_level) {
  PENTATRON_CHECK(max_level >= 0 && max_level <= kFinestLevel, kInternal,
                  "timer level {}, expected 0 to {}", max_level, kFinestLevel);
}

void Timers::start(std::string_view name, int level) {
  PENTATRON_CHECK(level >= 0 && level <= kFinestLevel, kInternal,
                  "timer {} has level {}, expected 0 to {}", name, level, kFinestLevel);
  auto found = entries_.find(name);
  if (found == entries_.end()) {
    found = entries_.emplace(std::string(name), Entry{.level = level, .interval = {}}).first;
    if (level <= max_level_) names_.emplace_back(name);
  }
  Entry& entry = found->second;
  PENTATRON_CHECK(entry.level == level, kInternal, "timer {} has level {}, not {}", name,
                  entry.level, level);
  PENTATRON_CHECK(!entry.running, kInternal, "timer {} was started twice", name);
  entry.running = true;
  if (level > max_level_) return;
  if (synchronize_) synchronize_();
  entry.interval.restart();
}

void Timers::stop(std::string_view name) {
  const auto found = entries_.find(name);
  PENTATRON_CHECK(found != entries_.end() && found->second.running, kInternal,
                  "timer {} was stopped but not started", name);
  Entry& entry = found->second;
  entry.running = false;
  if (entry.level > max_level_) return;
  if (synchronize_) synchronize_();
  entry.sum_seconds += entry.interval.seconds();
}

double Timers::elapsed_seconds(std::string_view name, bool reset) {
  const auto found = entries_.find(name);
  if (found == entries_.end() || found->second.level > max_level_) return 0;
  Entry& entry = found->second;
  if (entry.running) {
    entry.sum_seconds += entry.interval.seconds();
    entry.interval.restart();
  }
  const double sum = entry.sum_seconds;
  if (reset) entry.sum_seconds = 0;
  return sum;
}

}  // namespace pentatron
