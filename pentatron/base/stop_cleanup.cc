// SPDX-License-Identifier: Apache-2.0
#include "pentatron/base/stop_cleanup.h"

#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <mutex>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/base/screen.h"

namespace pentatron {
namespace {
namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::array kStopSignals = {SIGINT, SIGTERM, SIGHUP};
// A file system that hangs must not make the process immune to signals.
constexpr std::chrono::seconds kLongestHold{60};
// Ranks in other processes may still add files to a folder that is removed here; they are ending.
constexpr int kRemovals = 1000;
constexpr std::size_t kMaxNames = 1024;

struct State {
  std::atomic<int> holds{0};
  std::atomic<bool> ending{false};
  std::atomic<int> signal{0};  // 0 on waking: the StopCleanup itself ends
  sem_t wake{};
  std::mutex mutex;  // of `names`; held in a HoldStop only, so it is free once holds are over
  std::array<fs::path, kMaxNames> names;  // empty: a free slot
};

// Never destroyed: a signal may come while static objects die.
State& state() {
  static State* const kState = new State;
  return *kState;
}

thread_local int holds_of_thread = 0;

extern "C" void wake_cleaner(int signal) {
  const int error = errno;
  state().signal.store(signal);
  ::sem_post(&state().wake);
  errno = error;
}

void remove_stubbornly(const fs::path& path) {
  for (int i = 0; i < kRemovals; ++i) {
    try {
      remove_tree(path);
      return;
    } catch (const std::exception&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
}

void clean_and_end(State& now, int signal) {
  now.ending.store(true);
  const auto deadline = Clock::now() + kLongestHold;
  while (now.holds.load() > 0 && Clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  ++holds_of_thread;  // this thread may remove what others may not touch any more
  if (now.holds.load() == 0) {
    for (const fs::path& path : now.names) {
      if (!path.empty()) remove_stubbornly(path);
    }
  }
  screen::stop(signal);
  ::signal(signal, SIG_DFL);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, signal);
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  ::raise(signal);
}

void run_cleaner() {
  State& now = state();
  while (::sem_wait(&now.wake) != 0) {
  }
  if (const int signal = now.signal.load(); signal != 0) clean_and_end(now, signal);
}

}  // namespace

HoldStop::HoldStop() {
  if (holds_of_thread++ > 0) return;
  State& now = state();
  // Either the cleaner sees this hold, or this thread sees that the process is ending.
  now.holds.fetch_add(1);
  if (!now.ending.load()) return;
  now.holds.fetch_sub(1);
  for (;;) ::pause();
}

HoldStop::~HoldStop() {
  if (--holds_of_thread == 0) state().holds.fetch_sub(1);
}

void TemporaryName::remember(fs::path path) {
  const HoldStop hold;
  forget();
  path = fs::absolute(path);  // in case the working folder changes
  State& now = state();
  const std::lock_guard<std::mutex> lock(now.mutex);
  for (std::size_t i = 0; i < kMaxNames; ++i) {
    if (!now.names[i].empty()) continue;
    now.names[i] = path;
    slot_ = static_cast<int>(i);
    return;
  }
  PENTATRON_THROW(kInternal, "more than {} temporary files at a time, the next is {}", kMaxNames,
                  path.string());
}

void TemporaryName::forget() {
  if (slot_ < 0) return;
  const HoldStop hold;
  State& now = state();
  const std::lock_guard<std::mutex> lock(now.mutex);
  now.names[static_cast<std::size_t>(slot_)].clear();
  slot_ = -1;
}

StopCleanup::StopCleanup() {
  State& now = state();
  now.signal.store(0);
  PENTATRON_CHECK(::sem_init(&now.wake, 0, 0) == 0, kInternal, "sem_init failed");
  // The thread takes no signal itself: handlers belong to the threads that were there without it.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  cleaner_ = std::thread(run_cleaner);
  pthread_setname_np(cleaner_.native_handle(), "stop_cleanup");
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  for (const int signal : kStopSignals) {
    struct sigaction former {};
    if (::sigaction(signal, nullptr, &former) != 0 || former.sa_handler != SIG_DFL) continue;
    struct sigaction action {};
    action.sa_handler = &wake_cleaner;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    if (::sigaction(signal, &action, nullptr) == 0) former_.emplace_back(signal, former);
  }
}

StopCleanup::~StopCleanup() {
  for (const auto& [signal, former] : former_) ::sigaction(signal, &former, nullptr);
  ::sem_post(&state().wake);
  cleaner_.join();  // a signal that came before is obeyed here
}

}  // namespace pentatron
