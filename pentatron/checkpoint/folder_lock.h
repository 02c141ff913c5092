// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <optional>
#include <thread>

#include "pentatron/base/stop_cleanup.h"
#include "pentatron/checkpoint/lock_holder.h"

namespace pentatron::checkpoint {

inline constexpr const char* kLockName = ".pentatron_lock";

// The right to write checkpoints into a folder, held by one process at a time from construction to
// destruction. It stands on two things: a lock of the kernel on <folder>/.pentatron_lock, which
// ends with its process and which local and most network file systems keep; and, for holders on
// machines whose locks cannot be seen here, a count in that file that the holder raises as long as
// it lives. A lock that a dead process left is taken over, with a line in the log.
class FolderLock final {
 public:
  struct Timing {
    std::chrono::milliseconds heartbeat{10'000};
    // A holder on another machine whose count stands still for so long is dead.
    std::chrono::milliseconds silence{45'000};
    // A holder here is given so long to end: the last run may just be dying.
    std::chrono::milliseconds grace{3'000};
  };

  // The folder must be there. Held by another: kConfig, naming its host, process and start. Waits
  // for Timing::silence when another machine's lock has to be watched, after saying so.
  explicit FolderLock(std::filesystem::path folder) : FolderLock(std::move(folder), Timing{}) {}
  FolderLock(std::filesystem::path folder, Timing timing);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  // Before something is written: kCheckpoint when another process has taken the lock over (this one
  // was stopped for too long). A lock whose file was removed is taken anew.
  void check_held();

 private:
  void acquire();
  [[nodiscard]] bool try_open();
  void take(const std::optional<LockHolder>& former);
  [[nodiscard]] bool watch(const LockHolder& former);
  void write_record();
  void beat();
  void release();

  std::filesystem::path folder_;
  std::filesystem::path path_;
  Timing timing_;
  LockHolder self_;
  TemporaryName name_;
  int fd_ = -1;
  bool kernel_keeps_locks_ = true;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool ending_ = false;
  std::thread heart_;
};

}  // namespace pentatron::checkpoint
