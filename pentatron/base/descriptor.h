// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

namespace pentatron {

// A file descriptor that is closed at the end of the scope; for reads and folders, where closing
// cannot lose data. Negative: none.
class Descriptor final {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace pentatron
