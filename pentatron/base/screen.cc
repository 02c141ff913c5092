// SPDX-License-Identifier: Apache-2.0
#include "pentatron/base/screen.h"

#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace pentatron::screen {
namespace {

constexpr std::chrono::milliseconds kTick{100};
constexpr std::chrono::seconds kLongestTurn{1};

struct State {
  std::timed_mutex mutex;  // of what is on the terminal
  int descriptor = -1;     // of the live line
  int drawn = 0;           // columns of it on the terminal; 0: none
  std::atomic<bool> shared{false};
  std::atomic<bool> terse{false};
  std::atomic<bool> stopped{false};

  std::mutex live_mutex;  // of the three below
  std::condition_variable ends;
  bool live = false;
  std::optional<std::thread> thread;

  std::mutex notice_mutex;
  std::function<std::string(int)> notice;
};

// Never destroyed: threads may still print while the process ends.
State& state() {
  static State* const kState = new State;
  return *kState;
}

void put(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return;  // a terminal that went away ends no run
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

// Back over a line that was drawn: more than one row where the terminal has become narrower since.
std::string erasure(int drawn, int columns) {
  std::string text;
  for (int rows = columns > 0 ? (drawn - 1) / columns : 0; rows > 0; --rows) text += "\x1b[A";
  return text + "\r\x1b[J";
}

// The screen is this caller's.
void erase(State& now) {
  if (now.drawn == 0) return;
  put(now.descriptor, erasure(now.drawn, look_at_terminal(now.descriptor).columns));
  now.drawn = 0;
}

// In the background, a line that is always written anew would ruin what stands in the foreground.
// Ranks under `launch` are groups of their own, so their launcher's counts.
bool in_foreground(int descriptor) {
  const pid_t foreground = ::tcgetpgrp(descriptor);
  if (foreground < 0 || foreground == ::getpgrp()) return true;
  return std::getenv("LOCAL_WORLD_SIZE") != nullptr && foreground == ::getpgid(::getppid());
}

void draw_once(State& now, const LiveLine::Draw& draw, int tick) {
  const Terminal terminal = look_at_terminal(now.descriptor);
  if (now.stopped.load() || !terminal.interactive || !in_foreground(now.descriptor)) return;
  // One column stays free: some terminals wrap as soon as the last is filled.
  const std::string text = cut_to_width(draw(terminal, tick), terminal.columns - 1);
  const std::unique_lock<std::timed_mutex> lock(now.mutex, kLongestTurn);
  if (!lock.owns_lock() || now.stopped.load()) return;
  // Written over in place, then cleared behind: no flicker.
  const bool fits = now.drawn <= terminal.columns;
  put(now.descriptor,
      fmt::format("{}{}\x1b[K", fits ? "\r" : erasure(now.drawn, terminal.columns), text));
  now.drawn = std::max(1, display_width(text));
}

void tick_until_the_end(State& now, const LiveLine::Draw& draw) {
  int tick = 0;
  std::unique_lock<std::mutex> lock(now.live_mutex);
  do {
    lock.unlock();
    draw_once(now, draw, tick++);
    lock.lock();
  } while (!now.ends.wait_for(lock, kTick, [&now] { return !now.live; }));
}

}  // namespace

Turn::Turn() {
  State& now = state();
  locked_ = now.mutex.try_lock_for(kLongestTurn);
  if (locked_) erase(now);
  if (is_shared()) put(STDERR_FILENO, "\r\x1b[K");
}

Turn::~Turn() {
  if (locked_) state().mutex.unlock();
}

void print(std::string_view line) {
  const Turn turn;
  // A run does not end because its terminal went away, so failures to print are not errors.
  const std::string whole = std::string(line) + "\n";
  std::fwrite(whole.data(), 1, whole.size(), stdout);
  std::fflush(stdout);
}

void share() { state().shared.store(look_at_terminal(STDERR_FILENO).interactive); }
bool is_shared() { return state().shared.load(); }
void set_terse(bool terse) { state().terse.store(terse); }
bool is_terse() { return state().terse.load(); }

LiveLine::LiveLine(int descriptor, Draw draw) {
  State& now = state();
  if (!look_at_terminal(descriptor).interactive) return;
  const std::lock_guard<std::mutex> lock(now.live_mutex);
  if (now.live) return;
  now.live = true;
  owns_ = true;
  now.descriptor = descriptor;
  // The thread takes no signal: handlers belong to the threads that were there without it.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  now.thread.emplace([&now, draw = std::move(draw)] { tick_until_the_end(now, draw); });
  pthread_setname_np(now.thread->native_handle(), "screen");
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

LiveLine::~LiveLine() {
  if (!owns_) return;
  State& now = state();
  {
    const std::lock_guard<std::mutex> lock(now.live_mutex);
    now.live = false;
  }
  now.ends.notify_all();
  now.thread->join();
  now.thread.reset();
  const Turn turn;  // erases it
}

StopNotice::StopNotice(std::function<std::string(int)> text) {
  State& now = state();
  const std::lock_guard<std::mutex> lock(now.notice_mutex);
  before_ = std::exchange(now.notice, std::move(text));
}

StopNotice::~StopNotice() {
  State& now = state();
  const std::lock_guard<std::mutex> lock(now.notice_mutex);
  now.notice = std::move(before_);
}

void stop(int signal) {
  State& now = state();
  std::string text;
  {
    const std::lock_guard<std::mutex> lock(now.notice_mutex);
    if (now.notice) text = now.notice(signal);
  }
  const Turn turn;
  now.stopped.store(true);
  if (!text.empty()) put(STDERR_FILENO, text + "\n");
}

bool reader_is_gone() {
  pollfd one{.fd = STDOUT_FILENO, .events = POLLOUT, .revents = 0};
  return ::poll(&one, 1, 0) == 1 && (one.revents & POLLERR) != 0;
}

}  // namespace pentatron::screen
