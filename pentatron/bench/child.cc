// SPDX-License-Identifier: Apache-2.0
#include "pentatron/bench/child.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "pentatron/base/error.h"

namespace pentatron::bench {
namespace {

constexpr int kExecFailed = 127;
constexpr int kSignalled = 128;  // as shells say it
constexpr std::chrono::milliseconds kTick(100);

}  // namespace

int run_program(const std::vector<std::string>& words, const std::filesystem::path& log,
                const std::function<void()>& while_running) {
  std::vector<std::string> texts = {"/proc/self/exe"};
  texts.insert(texts.end(), words.begin(), words.end());
  std::vector<char*> argv;
  for (std::string& text : texts) argv.push_back(text.data());
  argv.push_back(nullptr);
  const int out = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  PENTATRON_CHECK(out >= 0, kIo, "cannot write {}: {}", log.string(), std::strerror(errno));
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) {
    // System calls only: other threads of this process may hold locks.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(kExecFailed);
    ::dup2(out, STDOUT_FILENO);
    ::dup2(out, STDERR_FILENO);
    ::execv(argv[0], argv.data());
    ::_exit(kExecFailed);
  }
  const int error = errno;
  ::close(out);
  PENTATRON_CHECK(pid > 0, kIo, "cannot start a process: {}", std::strerror(error));
  for (;;) {
    int status = 0;
    const pid_t ended = ::waitpid(pid, &status, WNOHANG);
    if (ended == pid) {
      return WIFEXITED(status) ? WEXITSTATUS(status) : kSignalled + WTERMSIG(status);
    }
    PENTATRON_CHECK(ended == 0 || errno == EINTR, kIo, "waiting for a process: {}",
                    std::strerror(errno));
    while_running();
    std::this_thread::sleep_for(kTick);
  }
}

}  // namespace pentatron::bench
