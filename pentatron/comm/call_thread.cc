// SPDX-License-Identifier: Apache-2.0
#include "pentatron/comm/call_thread.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

namespace pentatron::comm {

struct CallThread::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> calls;  // the one that runs is the first
  bool stop = false;
  std::thread thread;

  void run() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [this] { return stop || !calls.empty(); });
      if (calls.empty()) return;
      std::function<void()> call = std::move(calls.front());
      lock.unlock();
      call();
      call = nullptr;  // what it owns ends without the mutex
      lock.lock();
      calls.pop_front();
      changed.notify_all();
    }
  }
};

CallThread::CallThread() : state_(std::make_shared<State>()) {
  state_->thread = std::thread([state = state_.get(), keep = state_] { state->run(); });
}

CallThread::~CallThread() {
  bool left_behind = false;
  {
    const std::lock_guard lock(state_->mutex);
    left_behind = !state_->calls.empty();
    state_->stop = true;
    state_->changed.notify_all();
  }
  // A thread that is left behind keeps its state and ends the process's way.
  if (left_behind) {
    state_->thread.detach();
  } else {
    state_->thread.join();
  }
}

void CallThread::post(std::function<void()> call) {
  const std::lock_guard lock(state_->mutex);
  state_->calls.push_back(std::move(call));
  state_->changed.notify_all();
}

void CallThread::wait_idle() {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [this] { return state_->calls.empty(); });
}

}  // namespace pentatron::comm
