// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>

namespace pentatron::comm {

// Runs calls one after another on a thread of its own, in the order in which they were posted: the
// calls of one group, which wait for other members. Not shared between threads but for that.
class CallThread final {
 public:
  CallThread();
  // Calls that have not ended are left behind with their thread: they may wait for members that
  // never come. So a call owns what it needs.
  ~CallThread();
  CallThread(const CallThread&) = delete;
  CallThread& operator=(const CallThread&) = delete;

  // `call` must not throw.
  void post(std::function<void()> call);
  // Waits until everything that was posted has ended.
  void wait_idle();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace pentatron::comm
