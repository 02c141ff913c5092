// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

// Runs the real program as a child process.
namespace pentatron::functional {

// A child while it runs, for observers.
struct RunningProgram {
  pid_t pid = -1;
  const std::string& out;  // what it has printed so far
  const std::string& err;
};

struct ProgramRequest {
  std::vector<std::string> words = {};                      // after the program's name
  std::map<std::string, std::string> environment = {};      // added to the test's own
  std::chrono::milliseconds timeout{60'000};                // then the child's group is killed
  bool as_nobody = false;                                   // under a user without rights
  std::function<void(const RunningProgram&)> observe = {};  // every millisecond or so
};

// Exit codes by kind of error.
inline constexpr int kExitConfig = 2;
inline constexpr int kExitData = 3;
inline constexpr int kExitIo = 4;
inline constexpr int kExitComm = 6;
inline constexpr int kExitCheckpoint = 7;

struct ProgramResult {
  int exit_code = -1;  // -1: ended by a signal
  int signal = 0;
  bool timed_out = false;
  bool left_children = false;  // a process of its own still held its output a second later
  std::string out;
  std::string err;

  [[nodiscard]] bool ok() const { return exit_code == 0 && !timed_out && !left_children; }
  // How it ended and what it printed, for messages of tests.
  [[nodiscard]] std::string describe() const;
};

// Runs `$PENTATRON_BIN words...` with OMP_NUM_THREADS=1 and without the variables of launchers and
// of fault injection, unless `environment` sets them. Safe from several threads.
[[nodiscard]] ProgramResult run_program(const ProgramRequest& request);

// The same for plain words.
[[nodiscard]] ProgramResult call(std::vector<std::string> words);

// Direct children of a process, as the kernel lists them, without a launcher's guard.
[[nodiscard]] std::vector<pid_t> children_of(pid_t pid);

// A number of /proc/PID/status ("VmRSS" in kB, "Threads"); 0 when it cannot be read.
[[nodiscard]] std::int64_t process_status(pid_t pid, const std::string& name);

// Threads of a process that now carry the name.
[[nodiscard]] std::size_t threads_named(pid_t pid, const std::string& name);

// Processor time in seconds that each thread of a process has used so far, by thread id; nothing
// when the process is gone.
[[nodiscard]] std::map<pid_t, double> thread_seconds(pid_t pid);

}  // namespace pentatron::functional
