// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

// Most of a test's time is the start of child processes, so the tests are shared among two runners
// of this program, one a core; their lines come mixed, each naming its test. GoogleTest's own
// sharding variables or any argument (a filter, a list) turn that off.
namespace pentatron::functional {
namespace {

constexpr int kRunners = 2;

pid_t start_runner(int index, char** argv) {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  ::setenv("GTEST_TOTAL_SHARDS", std::to_string(kRunners).c_str(), 1);
  ::setenv("GTEST_SHARD_INDEX", std::to_string(index).c_str(), 1);
  ::execv("/proc/self/exe", argv);
  ::_exit(127);
}

int share_among_runners(char** argv) {
  std::vector<pid_t> runners;
  for (int i = 0; i < kRunners; ++i) runners.push_back(start_runner(i, argv));
  int result = 0;
  for (const pid_t runner : runners) {
    int status = 0;
    const bool ended = ::waitpid(runner, &status, 0) == runner && WIFEXITED(status);
    if (!ended || WEXITSTATUS(status) != 0) result = 1;
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
