// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>

#include <filesystem>
#include <thread>
#include <utility>
#include <vector>

// What a stop signal (Ctrl-C) may not leave behind: half-renamed groups of files, and temporary
// names. Process-wide by nature, as signal handlers are.
namespace pentatron {

// While one lives, on any thread, StopCleanup does not yet end the process: steps on names that
// belong together (create and remember, rename several) go to their end. Must be short and wait for
// no other thread. Nests. Once the process is being ended, the constructor does not return (but in
// the thread of an outer hold). A few nanoseconds.
class HoldStop final {
 public:
  HoldStop();
  ~HoldStop();
  HoldStop(const HoldStop&) = delete;
  HoldStop& operator=(const HoldStop&) = delete;
};

// A file or folder that StopCleanup removes as long as this object remembers it. Between the making
// of the thing and remember(), and between its rename and forget(), a HoldStop must live.
class TemporaryName final {
 public:
  TemporaryName() = default;
  ~TemporaryName() { forget(); }
  TemporaryName(const TemporaryName&) = delete;
  TemporaryName& operator=(const TemporaryName&) = delete;

  // kInternal beyond a fixed number of names at a time.
  void remember(std::filesystem::path path);
  void forget();
  [[nodiscard]] bool remembers() const { return slot_ >= 0; }

 private:
  int slot_ = -1;
};

// While it lives (in main), SIGINT, SIGTERM and SIGHUP, where nobody else has taken or ignored
// them, end the process as they do by default, but after every HoldStop has ended and the temporary
// names are removed. The handler only wakes a thread, so nothing here need be async-signal-safe. A
// SignalFlag takes a signal over for its own life.
class StopCleanup final {
 public:
  StopCleanup();
  ~StopCleanup();
  StopCleanup(const StopCleanup&) = delete;
  StopCleanup& operator=(const StopCleanup&) = delete;

 private:
  std::vector<std::pair<int, struct sigaction>> former_;
  std::thread cleaner_;
};

}  // namespace pentatron
