// SPDX-License-Identifier: Apache-2.0
#include "pentatron/checkpoint/folder_lock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/base/log.h"

namespace pentatron::checkpoint {
namespace fs = std::filesystem;
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kPoll{50};
constexpr std::size_t kMaxRecordBytes = 4096;

std::string read_record(int fd) {
  std::string text(kMaxRecordBytes, '\0');
  const ssize_t count = ::pread(fd, text.data(), text.size(), 0);
  text.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
  return text;
}

// What the name says now: opened anew, so that network file systems ask their server.
std::optional<LockHolder> holder_named(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return std::nullopt;
  const std::string text = read_record(fd);
  ::close(fd);
  return parse_lock(text);
}

// The open file still has the name: it was not removed by the holder before.
bool still_named(int fd, const fs::path& path) {
  struct stat open {};
  struct stat named {};
  return ::fstat(fd, &open) == 0 && ::lstat(path.c_str(), &named) == 0 &&
         open.st_dev == named.st_dev && open.st_ino == named.st_ino;
}

enum class KernelLock { kGot, kTaken, kUnsupported };

// Of the open file description, so that two in one process exclude each other too.
KernelLock lock_in_kernel(int fd) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  for (;;) {
    if (::fcntl(fd, F_OFD_SETLK, &lock) == 0) return KernelLock::kGot;
    if (errno == EINTR) continue;
    return errno == EAGAIN || errno == EACCES ? KernelLock::kTaken : KernelLock::kUnsupported;
  }
}

[[noreturn]] void refuse(const fs::path& folder, const std::optional<LockHolder>& holder,
                         const std::string& more) {
  PENTATRON_THROW(
      kConfig,
      "--save {}: another run writes its checkpoints there ({}). Two runs would destroy "
      "each other's: wait for its end, end it, or give another --save.{}",
      folder.string(), holder ? describe(*holder) : "it does not say which", more);
}

}  // namespace

FolderLock::FolderLock(fs::path folder, Timing timing)
    : folder_(std::move(folder)), timing_(timing) {
  // The working folder may change, or go, before the next beat.
  std::error_code code;
  fs::path whole = fs::absolute(folder_, code);
  path_ = (code ? folder_ : whole) / kLockName;
  acquire();
  heart_ = std::thread([this] { beat(); });
}

FolderLock::~FolderLock() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  if (heart_.joinable()) heart_.join();
  release();
}

// Opens and locks the file; false when somebody holds it, or when it lost its name in between.
bool FolderLock::try_open() {
  const int flags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  fd_ = ::open(path_.c_str(), flags, 0666);
  PENTATRON_CHECK(fd_ >= 0, kIo, "--save {}: cannot write there ({}: {})", folder_.string(),
                  kLockName, std::generic_category().message(errno));
  const KernelLock got = lock_in_kernel(fd_);
  kernel_keeps_locks_ = got != KernelLock::kUnsupported;
  if (got != KernelLock::kTaken && still_named(fd_, path_)) return true;
  ::close(std::exchange(fd_, -1));
  return false;
}

void FolderLock::acquire() {
  self_ = this_process();
  const Clock::time_point give_up = Clock::now() + timing_.grace;
  for (;;) {
    if (!try_open()) {
      if (Clock::now() >= give_up) refuse(folder_, holder_named(path_), "");
      std::this_thread::sleep_for(kPoll);
      continue;
    }
    const std::optional<LockHolder> former = parse_lock(read_record(fd_));
    // A process of this machine would still hold the kernel's lock if it lived.
    const bool dead =
        kernel_keeps_locks_ && former && !self_.boot_id.empty() && former->boot_id == self_.boot_id;
    if (!former || dead || watch(*former)) {
      take(former);
      return;
    }
    ::close(std::exchange(fd_, -1));
  }
}

// True when the former holder shows no sign of life; false when its file has gone meanwhile.
bool FolderLock::watch(const LockHolder& former) {
  log::warn("--save {}: locked by {}; waiting {} s to see whether it is alive", folder_.string(),
            describe(former), std::chrono::duration<double>(timing_.silence).count());
  const Clock::time_point end = Clock::now() + timing_.silence;
  while (Clock::now() < end) {
    std::this_thread::sleep_for(std::min(kPoll * 10, timing_.silence / 10));
    const std::optional<LockHolder> now = holder_named(path_);
    if (!still_named(fd_, path_)) return false;
    if (now && (now->token != former.token || now->beats != former.beats)) {
      refuse(folder_, now,
             fmt::format(" It has just shown that it is alive ({}).", path_.string()));
    }
  }
  return true;
}

void FolderLock::take(const std::optional<LockHolder>& former) {
  {
    const HoldStop hold;
    write_record();
    name_.forget();
    name_.remember(path_);
  }
  if (!kernel_keeps_locks_) {
    // Two processes that locked at the same moment differ only by the record: the later one wins.
    std::this_thread::sleep_for(std::min(timing_.silence, milliseconds(500)));
    const std::optional<LockHolder> now = holder_named(path_);
    if (!now || now->token != self_.token) {
      name_.forget();
      ::close(std::exchange(fd_, -1));
      refuse(folder_, now, "");
    }
  }
  if (former) {
    log::warn("--save {}: took over the lock that a run left without removing it ({})",
              folder_.string(), describe(*former));
  }
}

void FolderLock::write_record() {
  const std::string text = lock_text(self_);
  const bool written =
      ::pwrite(fd_, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()) &&
      ::ftruncate(fd_, static_cast<off_t>(text.size())) == 0;
  const int code = errno;
  if (written) {
    // Others on a network file system see it from here on; a file system that cannot sync tells
    // them in its own time.
    ::fsync(fd_);
    return;
  }
  ::ftruncate(fd_, 0);
  ::close(std::exchange(fd_, -1));
  PENTATRON_THROW(kIo, "--save {}: cannot write there ({}: {})", folder_.string(), kLockName,
                  std::generic_category().message(code));
}

// Until the end, or until somebody else's record stands there.
void FolderLock::beat() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!wake_.wait_for(lock, timing_.heartbeat, [this] { return ending_; })) {
    const std::optional<LockHolder> now = parse_lock(read_record(fd_));
    if (now && now->token != self_.token) return;
    ++self_.beats;
    const std::string text = lock_text(self_);
    // A beat that fails is one that others do not see; the next may succeed.
    if (::pwrite(fd_, text.data(), text.size(), 0) > 0) ::fdatasync(fd_);
  }
}

void FolderLock::check_held() {
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::optional<LockHolder> now = holder_named(path_);
  if (now && now->token == self_.token) return;
  PENTATRON_CHECK(!now, kCheckpoint,
                  "--save {}: the lock was taken over by {}, because this run showed no sign of "
                  "life for too long: nothing more is written there. Give one of the two another "
                  "--save.",
                  folder_.string(), describe(*now));
  log::warn("--save {}: {} is gone; made anew", folder_.string(), kLockName);
  ::close(std::exchange(fd_, -1));
  create_folders(folder_);
  acquire();
}

void FolderLock::release() {
  if (fd_ < 0) return;
  const HoldStop hold;
  const std::optional<LockHolder> now = parse_lock(read_record(fd_));
  if (now && now->token == self_.token && still_named(fd_, path_)) ::unlink(path_.c_str());
  name_.forget();
  ::close(std::exchange(fd_, -1));
}

}  // namespace pentatron::checkpoint
