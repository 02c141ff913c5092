// SPDX-License-Identifier: Apache-2.0
// Real processes: launch() and the gloo backend through comm_worker.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "pentatron/base/error.h"
#include "pentatron/base/temp_folder.h"
#include "pentatron/comm/backend.h"
#include "pentatron/comm/launch.h"

namespace pentatron::comm {
namespace {

using Clock = std::chrono::steady_clock;

std::string worker() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / "comm_worker";
}

LaunchOptions launch_options(int processes, const std::string& mode,
                             const std::string& folder = "") {
  LaunchOptions options;
  options.nproc_per_node = processes;
  options.command = {worker(), mode, folder};
  return options;
}

std::string result_of(const std::string& folder, int rank) {
  std::ifstream file(folder + "/rank" + std::to_string(rank) + ".txt");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

class GlooConformance : public testing::TestWithParam<int> {};
TEST_P(GlooConformance, EveryOperation) {
  EXPECT_EQ(launch(launch_options(GetParam(), "conformance")), 0);
}
INSTANTIATE_TEST_SUITE_P(Worlds, GlooConformance, testing::Values(2, 3, 4));

TEST(GlooBackend, PeersOfAKilledRankGetAnErrorSoon) {
  const TempFolder folder("comm");
  EXPECT_EQ(launch(launch_options(3, "kill", folder.path())), 128 + SIGKILL);
  for (int rank : {0, 2}) {
    const std::string result = result_of(folder.path(), rank);
    EXPECT_TRUE(contains(result, "comm after ") && contains(result, "group 'all', all_reduce"))
        << result;
    EXPECT_LT(std::stod(result.substr(result.find("after ") + 6)), 5.0) << result;
  }
}

TEST(GlooBackend, PeersOfAFailedRankGetItsMessage) {
  // "throw": it reports its error and ends. "poison": it reports and stays, so no socket closes.
  for (const std::string mode : {"throw", "poison"}) {
    const TempFolder folder("comm");
    EXPECT_EQ(launch(launch_options(3, mode, folder.path())), mode == "throw" ? 3 : 6);
    for (int rank : {0, 2}) {
      const std::string result = result_of(folder.path(), rank);
      EXPECT_TRUE(contains(result, "comm after ") &&
                  contains(result, "rank 1 failed: a planted error in rank 1\\x1b[31m"))
          << result;
      EXPECT_LT(std::stod(result.substr(result.find("after ") + 6)), mode == "poison" ? 1.9 : 3.0)
          << result;
    }
  }
}

// A listening socket on a port of the loopback device.
class TakenPort final {
 public:
  TakenPort() : fd_(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int off = 0;
    ::setsockopt(fd_, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_addr = in6addr_any;
    socklen_t length = sizeof(address);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (fd_ < 0 || ::bind(fd_, generic, length) != 0) {  // a machine without IPv6
      if (fd_ >= 0) ::close(fd_);
      fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      auto* v4 = reinterpret_cast<sockaddr_in*>(&address);
      *v4 = {};
      v4->sin_family = AF_INET;
      length = sizeof(sockaddr_in);
      EXPECT_EQ(::bind(fd_, generic, length), 0);
    }
    EXPECT_EQ(::listen(fd_, 4), 0);
    length = sizeof(address);
    EXPECT_EQ(::getsockname(fd_, generic, &length), 0);
    port_ = ntohs(address.sin6_port);  // the same place for both families
  }
  ~TakenPort() { ::close(fd_); }
  TakenPort(const TakenPort&) = delete;
  TakenPort& operator=(const TakenPort&) = delete;
  [[nodiscard]] int port() const { return port_; }

 private:
  int fd_;
  int port_ = 0;
};

std::string comm_error(const GlooOptions& options) {
  try {
    const auto backend = make_gloo_backend(options);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kComm) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

TEST(GlooBackend, TakenPortIsNamed) {
  const TakenPort taken;
  GlooOptions options;
  options.world_size = 2;
  options.master_port = taken.port();
  const auto begin = Clock::now();
  const std::string message = comm_error(options);
  EXPECT_LT(seconds_since(begin), 5.0);
  for (const std::string& part :
       {"port " + std::to_string(taken.port()), std::string("--master-port"),
        std::string("MASTER_PORT"), std::string("rank 0")}) {
    EXPECT_TRUE(contains(message, part)) << message;
  }
}

TEST(GlooBackend, MissingPeersAreNamed) {
  GlooOptions options;
  options.world_size = 2;
  options.master_port = free_port();
  options.timeout = std::chrono::milliseconds(300);
  EXPECT_TRUE(contains(comm_error(options), "rank 1 of 2 did not join"));
  options.rank = 1;  // nobody serves the rendezvous
  options.timeout = std::chrono::milliseconds(1500);
  const auto begin = Clock::now();
  const std::string message = comm_error(options);
  EXPECT_LT(seconds_since(begin), 8.0);
  EXPECT_TRUE(contains(message, std::to_string(options.master_port)) &&
              contains(message, "MASTER_PORT"))
      << message;
  options.rank = 2;
  EXPECT_THROW(static_cast<void>(make_gloo_backend(options)), Error);
  options.rank = 0;
  options.master_port = 0;
  EXPECT_THROW(static_cast<void>(make_gloo_backend(options)), Error);
}

TEST(Launch, EndsTheOthersWhenOneFails) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(launch(launch_options(3, "exit")), 7);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(contains(log, "rank 1") && contains(log, "exit code 7")) << log;

  LaunchOptions stubborn = launch_options(2, "stubborn");
  stubborn.grace_seconds = 2;
  testing::internal::CaptureStderr();
  EXPECT_EQ(launch(stubborn), 9);
  const std::string ending = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(contains(ending, "ranks still run 2 s after SIGTERM; killing them")) << ending;
}

// Without a number too: after a failure nobody waits for a rank that takes no notice of SIGTERM.
TEST(Launch, GivesARankThatDoesNotListenASecond) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(launch(launch_options(2, "stubborn")), 9);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(contains(log, "ranks still run 1 s after SIGTERM; killing them")) << log;
}

// Within two seconds, with one message: which rank, why, its last lines.
TEST(Launch, QuotesTheRankThatDied) {
  const TempFolder folder("comm");
  // What it costs here and now to start and end one process.
  const auto begin = Clock::now();
  EXPECT_EQ(launch(launch_options(1, "exit")), 0);
  const double one_process = seconds_since(begin);
  testing::internal::CaptureStderr();
  EXPECT_EQ(launch(launch_options(3, "die", folder.path())), 7);
  const double now = std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
  const double seconds = now - std::stod(result_of(folder.path(), 1));
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_LT(seconds, 2.0 + one_process);
  const std::size_t quoted =
      log.find("ended with exit code 7; ending the other ranks; its last lines:");
  ASSERT_NE(quoted, std::string::npos) << log;
  EXPECT_EQ(log.find("launch: rank", log.find("launch: rank") + 1), std::string::npos) << log;
  const std::string lines = log.substr(quoted);
  EXPECT_TRUE(contains(lines, "\n  | line 39 of rank 1")) << log;
  EXPECT_TRUE(contains(lines, "\n  | line 30 of rank 1")) << log;
  EXPECT_FALSE(contains(lines, "line 29 of rank 1")) << log;
  // All of it was passed on, once.
  EXPECT_TRUE(contains(log, "line 0 of rank 1\n") && contains(log, "line 39 of rank 1\n")) << log;
}

// A launcher in a process of its own, so that signals can be sent to it.
TEST(Launch, PassesSignalsOnAndLeavesNoOrphans) {
  for (const int signal : {SIGTERM, SIGKILL}) {
    const TempFolder folder("comm");
    const LaunchOptions options = launch_options(2, "sleep", folder.path());
    const pid_t launcher = ::fork();
    if (launcher == 0) {
      const int code = launch(options);
      ::_exit(code);
    }
    const auto begin = Clock::now();
    std::vector<pid_t> ranks;
    while (ranks.size() < 2 && seconds_since(begin) < 30) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      ranks.clear();
      for (int rank : {0, 1}) {
        const std::string text = result_of(folder.path(), rank);
        if (contains(text, "\n")) ranks.push_back(std::stoi(text));
      }
    }
    ASSERT_EQ(ranks.size(), 2U);
    ::kill(launcher, signal);
    int status = 0;
    ASSERT_EQ(::waitpid(launcher, &status, 0), launcher);
    if (signal == SIGTERM) {
      EXPECT_TRUE(WIFEXITED(status));
      EXPECT_EQ(WEXITSTATUS(status), 128 + SIGTERM);
    }
    const auto alive = [](pid_t pid) {
      std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
      std::string text;
      std::getline(file, text);
      return !text.empty() && !contains(text, ") Z ");
    };
    const auto killed = Clock::now();
    while ((alive(ranks[0]) || alive(ranks[1])) && seconds_since(killed) < 5) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    EXPECT_FALSE(alive(ranks[0]) || alive(ranks[1])) << "signal " << signal;
  }
}

// Two launchers, as on two machines: the ranks of the one are told how a rank of the other ended.
TEST(Launch, TellsTheOtherMachineOfADeath) {
  const TempFolder folder("comm");
  LaunchOptions options = launch_options(1, "kill", folder.path());
  options.nnodes = 2;
  options.master_port = free_port();
  options.job_token = "secret";
  const pid_t other = ::fork();
  if (other == 0) {
    options.node_rank = 1;
    ::_exit(launch(options));
  }
  static_cast<void>(launch(options));
  int status = 0;
  ASSERT_EQ(::waitpid(other, &status, 0), other);
  EXPECT_EQ(WEXITSTATUS(status), 128 + SIGKILL);
  EXPECT_TRUE(contains(result_of(folder.path(), 0), "rank 1 was ended by signal 9"))
      << result_of(folder.path(), 0);
}

TEST(Launch, BadOptionsAreRefused) {
  const auto message_of = [](const LaunchOptions& options) {
    try {
      static_cast<void>(launch(options));
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      return std::string(error.what());
    }
    return std::string("no error");
  };
  LaunchOptions options;
  EXPECT_TRUE(contains(message_of(options), "no command"));
  options.command = {"/nonexistent/program"};
  EXPECT_TRUE(contains(message_of(options), "cannot run '/nonexistent/program'"));
  options.nproc_per_node = 0;
  EXPECT_TRUE(contains(message_of(options), "--nproc-per-node 0"));
  options.nproc_per_node = 1;
  options.nnodes = 2;
  EXPECT_TRUE(contains(message_of(options), "--master-port"));
  options.node_rank = 2;
  EXPECT_TRUE(contains(message_of(options), "--node-rank 2"));
  options.node_rank = 0;
  options.master_port = 70000;
  EXPECT_TRUE(contains(message_of(options), "70000"));
  EXPECT_GT(free_port(), 0);
}

}  // namespace
}  // namespace pentatron::comm
