// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/resource.h>

#include <csignal>

namespace pentatron {

// Files of this process may not grow beyond so many bytes: the kernel's own refusal, as on a disk
// that is full in the middle of a write. Only tests include it.
class LargestFile final {
 public:
  explicit LargestFile(rlim_t bytes) {
    former_handler_ = std::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &former_);
    const rlimit limit{bytes, former_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~LargestFile() {
    ::setrlimit(RLIMIT_FSIZE, &former_);
    std::signal(SIGXFSZ, former_handler_);
  }
  LargestFile(const LargestFile&) = delete;
  LargestFile& operator=(const LargestFile&) = delete;

 private:
  rlimit former_{};
  void (*former_handler_)(int) = nullptr;
};

}  // namespace pentatron
