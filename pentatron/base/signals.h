// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>

#include <initializer_list>
#include <utility>
#include <vector>

namespace pentatron {

// While it lives, the given signals only set a flag (system calls go on); the work asks for it at
// points where stopping is safe. The destructor restores the former handlers. Several may live, if
// they end in reverse order. A signal that cannot be caught: ErrorKind::kConfig.
class SignalFlag final {
 public:
  explicit SignalFlag(std::initializer_list<int> signals) : SignalFlag(std::vector<int>(signals)) {}
  explicit SignalFlag(const std::vector<int>& signals);
  ~SignalFlag();
  SignalFlag(const SignalFlag&) = delete;
  SignalFlag& operator=(const SignalFlag&) = delete;

  // Whether one of the signals has arrived since construction. Cheap, safe from any thread.
  [[nodiscard]] bool triggered() const { return signal_number() != 0; }
  // The first of them, in the order given, that has arrived; 0: none.
  [[nodiscard]] int signal_number() const;

 private:
  void restore() noexcept;
  std::vector<std::pair<int, struct sigaction>> former_;
};

}  // namespace pentatron
