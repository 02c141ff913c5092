// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "pentatron/base/temp_folder.h"
#include "tests/functional/tiny_run.h"

// Most of a test's time is the start of child processes, so the tests are shared among two runners
// of this program, one a core. GoogleTest's own sharding variables, a filter or a list turn that
// off.
namespace pentatron::functional {
namespace {

constexpr int kRunners = 2;

pid_t start_runner(int index, const std::filesystem::path& log, char** argv) {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  const int fd = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  ::dup2(fd, STDOUT_FILENO);
  ::dup2(fd, STDERR_FILENO);
  ::setenv("GTEST_TOTAL_SHARDS", std::to_string(kRunners).c_str(), 1);
  ::setenv("GTEST_SHARD_INDEX", std::to_string(index).c_str(), 1);
  ::execv("/proc/self/exe", argv);
  ::_exit(127);
}

int share_among_runners(char** argv) {
  const TempFolder folder("pentatron_runners");
  std::vector<pid_t> runners;
  const auto log = [&](int i) { return folder.path() / (std::to_string(i) + ".log"); };
  for (int i = 0; i < kRunners; ++i) runners.push_back(start_runner(i, log(i), argv));
  int result = 0;
  for (int i = 0; i < kRunners; ++i) {
    int status = 0;
    ::waitpid(runners[static_cast<std::size_t>(i)], &status, 0);
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    if (code != 0) result = code;
    std::cout << "----- runner " << i + 1 << " of " << kRunners << ", exit code " << code << "\n"
              << read_file(log(i)) << std::flush;
  }
  return result;
}

}  // namespace
}  // namespace pentatron::functional

int main(int argc, char** argv) {
  const bool plain = argc == 1 && std::getenv("GTEST_TOTAL_SHARDS") == nullptr &&
                     std::getenv("GTEST_FILTER") == nullptr;
  if (plain) return pentatron::functional::share_among_runners(argv);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
