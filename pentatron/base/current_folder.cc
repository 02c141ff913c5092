// SPDX-License-Identifier: Apache-2.0
#include "pentatron/base/current_folder.h"

#include <limits.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

namespace pentatron {

void require_current_folder() {
  char path[PATH_MAX];
  if (::getcwd(path, sizeof(path)) != nullptr || errno != ENOENT) return;
  constexpr int kIoExitCode = 4;
  constexpr std::string_view kMessage =
      "error: the folder that this was started in is gone: change to another one\n";
  // The exit code says it, too, where nobody reads.
  if (::write(STDERR_FILENO, kMessage.data(), kMessage.size()) < 0) ::_exit(kIoExitCode);
  ::_exit(kIoExitCode);
}

}  // namespace pentatron
