// SPDX-License-Identifier: Apache-2.0
#include "pentatron/base/signals.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <system_error>

#include "pentatron/base/error.h"

namespace pentatron {
namespace {

// The one thing that a handler can reach: a process has one handler per signal. Lock-free atomics
// are safe in handlers and, unlike volatile sig_atomic_t, between threads.
constexpr std::size_t kNumSignals = NSIG;
std::array<std::atomic<int>, kNumSignals>& arrivals() {
  static constinit std::array<std::atomic<int>, kNumSignals> counts{};
  return counts;
}
static_assert(std::atomic<int>::is_always_lock_free);

void note_arrival(int signal) {
  arrivals()[static_cast<std::size_t>(signal)].store(1, std::memory_order_relaxed);
}

}  // namespace

SignalFlag::SignalFlag(const std::vector<int>& signals) {
  for (const int signal : signals) {
    const bool in_range = signal > 0 && signal < static_cast<int>(kNumSignals);
    struct sigaction action {};
    action.sa_handler = &note_arrival;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    struct sigaction former {};
    if (in_range) arrivals()[static_cast<std::size_t>(signal)].store(0);
    if (!in_range || ::sigaction(signal, &action, &former) != 0) {
      restore();
      PENTATRON_THROW(kConfig, "signal {} cannot be caught", signal);
    }
    former_.emplace_back(signal, former);
  }
}

SignalFlag::~SignalFlag() { restore(); }

int SignalFlag::signal_number() const {
  for (const auto& [signal, former] : former_) {
    if (arrivals()[static_cast<std::size_t>(signal)].load(std::memory_order_relaxed) != 0) {
      return signal;
    }
  }
  return 0;
}

void SignalFlag::restore() noexcept {
  // Backwards, in case one signal was named twice.
  for (auto it = former_.rbegin(); it != former_.rend(); ++it) {
    ::sigaction(it->first, &it->second, nullptr);
  }
  former_.clear();
}

}  // namespace pentatron
