// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/cache_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/base/log.h"

namespace pentatron::datasets {

CacheLock::CacheLock(std::filesystem::path file, std::string_view what) : file_(std::move(file)) {
  try {
    create_folders(file_.parent_path());
  } catch (const Error&) {
    return;  // told when the files cannot be written either
  }
  for (;;) {
    fd_ = ::open(file_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd_ < 0) return;
    int locked = ::flock(fd_, LOCK_EX | LOCK_NB);
    if (locked != 0 && errno == EWOULDBLOCK) {
      if (!std::exchange(waited_, true)) {
        log::info("the {} {} is being built by another process: waiting for it", what,
                  file_.stem().string());
      }
      do locked = ::flock(fd_, LOCK_EX);
      while (locked != 0 && errno == EINTR);
    }
    if (locked == 0 && still_there()) return;
    ::close(std::exchange(fd_, -1));
    if (locked != 0) return;  // no locks here
  }
}

CacheLock::~CacheLock() {
  if (fd_ < 0) return;
  ::unlink(file_.c_str());
  ::close(fd_);
}

bool CacheLock::still_there() const {
  struct stat held {};
  struct stat named {};
  return ::fstat(fd_, &held) == 0 && ::stat(file_.c_str(), &named) == 0 &&
         held.st_ino == named.st_ino && held.st_dev == named.st_dev;
}

}  // namespace pentatron::datasets
