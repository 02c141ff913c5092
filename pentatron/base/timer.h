// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "pentatron/base/trace.h"

// Wall-clock timing on the steady clock; knows no device (set_synchronize waits for one). Not
// shared between threads: each rank owns its timers.
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

  // Called before each reading of the clock, where the timed work is asynchronous (a GPU's
  // stream).
  void set_synchronize(std::function<void()> wait) { synchronize_ = std::move(wait); }
  // Called before a TimedScope of level 1 begins (one with a `meet` calls that instead), so that
  // its time holds no waiting for others: all ranks must come by the same scopes.
  void set_barrier(std::function<void()> barrier) { barrier_ = std::move(barrier); }

  // Every TimedScope, of any level, is a span of its lane "phases" too; may be null.
  void set_trace(Trace* trace) { trace_ = trace; }
  [[nodiscard]] Trace* trace() const { return trace_; }

  [[nodiscard]] bool on(int level) const { return level <= max_level_; }
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
  friend class TimedScope;
  int max_level_;
  std::function<void()> synchronize_;
  std::function<void()> barrier_;
  Trace* trace_ = nullptr;
  std::map<std::string, Entry, std::less<>> entries_;
  std::vector<std::string> names_;
};

// Times the block that it stands in. Without timers, or with a level that is off and no trace, it
// does nothing but compare; `name` then is not even looked at.
class TimedScope final {
 public:
  // `meet`: in place of the timers' barrier, where it is set, for work that only some ranks come
  // by, or that not all come by equally often. Waits for those that share the work.
  TimedScope(Timers* timers, std::string_view name, int level,
             const std::function<void()>& meet = {})
      : traced_(timers != nullptr ? timers->trace() : nullptr, "phases", name),
        timers_(timers != nullptr && timers->on(level) ? timers : nullptr),
        name_(name) {
    if (timers_ == nullptr) return;
    if (level == 1 && timers_->barrier_) (meet ? meet : timers_->barrier_)();
    timers_->start(name_, level);
  }
  ~TimedScope() {
    if (timers_ != nullptr) timers_->stop(name_);
  }
  TimedScope(const TimedScope&) = delete;
  TimedScope& operator=(const TimedScope&) = delete;

 private:
  TraceScope traced_;
  Timers* timers_;
  std::string_view name_;
};

}  // namespace pentatron
