// SPDX-License-Identifier: Apache-2.0
#include "pentatron/base/standard_descriptors.h"

#include <fcntl.h>
#include <unistd.h>

namespace pentatron {

void fill_standard_descriptors() {
  constexpr int kIoExitCode = 4;
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0) continue;
    // Those below are open, so the lowest free number is this one. Kept over exec: children of the
    // launcher need them as much.
    if (::open("/dev/null", O_RDWR) != fd) ::_exit(kIoExitCode);
  }
}

}  // namespace pentatron
