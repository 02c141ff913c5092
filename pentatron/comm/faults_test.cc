// SPDX-License-Identifier: Apache-2.0
// Stopped ranks, strangers at the rendezvous, wrong hosts, wrapper scripts: real processes.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "pentatron/base/error.h"
#include "pentatron/base/temp_folder.h"
#include "pentatron/comm/backend.h"
#include "pentatron/comm/job_environment.h"
#include "pentatron/comm/launch.h"
#include "pentatron/comm/launched_rank_test_support.h"
#include "pentatron/comm/rendezvous_address.h"
#include "pentatron/comm/rendezvous_client.h"
#include "pentatron/comm/rendezvous_server.h"

namespace pentatron::comm {
namespace {

using std::chrono::milliseconds;
using testing_support::Clock;
using testing_support::contains;

std::string worker() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / "comm_worker";
}

std::string text_of(const std::string& file) {
  std::ifstream stream(file);
  std::stringstream text;
  text << stream.rdbuf();
  return text.str();
}

std::string result_of(const TempFolder& folder, int rank) {
  return testing_support::result_of(folder.path(), rank);
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// False after two minutes: on a busy machine even loading a program takes long.
template <typename Condition>
bool soon(const Condition& condition) {
  const auto begin = Clock::now();
  while (!condition()) {
    if (seconds_since(begin) > 120) return false;
    std::this_thread::sleep_for(milliseconds(20));
  }
  return true;
}

bool alive(pid_t pid) {
  const std::string text = text_of("/proc/" + std::to_string(pid) + "/stat");
  return !text.empty() && !contains(text, ") Z ");
}

// Three ranks that reduce until one of them is stopped; what they and the launcher said.
struct Stopped {
  TempFolder folder{"comm"};
  std::string log;
  double seconds = 0;  // from the stop to the end of all
};
void run_and_stop(int rank, const std::string& mode, Stopped& run) {
  ::setenv("COMM_WORKER_TIMEOUT_MS", "6000", 1);
  LaunchOptions options;
  options.nproc_per_node = 3;
  options.grace_seconds = 15;
  options.command = {worker(), mode, run.folder.path()};
  testing::internal::CaptureStderr();
  Clock::time_point stopped;
  std::thread stopper([&] {
    const auto file = [&](const char* name) {
      return text_of(run.folder.path() / (name + std::to_string(rank)));
    };
    std::string pid;
    EXPECT_TRUE(soon([&] { return contains(pid = result_of(run.folder, rank), "\n"); }));
    if (mode == "stop") {
      EXPECT_TRUE(soon([&] { return !file("joined").empty(); }));
    } else {
      EXPECT_TRUE(soon([&] { return !file("steps").empty(); }));
      std::this_thread::sleep_for(milliseconds(1000));  // some beats
      if (!pid.empty()) ::kill(std::stoi(pid), SIGSTOP);
    }
    stopped = Clock::now();
  });
  EXPECT_EQ(launch(options), 6);
  stopper.join();
  run.seconds = seconds_since(stopped);
  run.log = testing::internal::GetCapturedStderr();
  ::unsetenv("COMM_WORKER_TIMEOUT_MS");
}

// A frozen rank 0 hung the job for ever; every other rank now ends, names it, and in time.
TEST(Faults, A2_StoppedRankIsNamedAndEndsTheJob) {
  for (const int rank : {0, 2}) {
    Stopped run;
    run_and_stop(rank, "reduce", run);
    const std::string silent = "rank " + std::to_string(rank) + " has not been heard of for ";
    EXPECT_TRUE(contains(run.log, silent) && contains(run.log, "last in 'group 'all', all_reduce"))
        << run.log;
    // The wait, the last words, the launcher's grace.
    EXPECT_LT(run.seconds, 45.0);
    for (const int other : {0, 1, 2}) {
      if (other == rank) continue;
      const std::string result = result_of(run.folder, other);
      EXPECT_TRUE(contains(result, "comm after ") && contains(result, "all_reduce")) << result;
      EXPECT_TRUE(contains(result, "rank " + std::to_string(rank)) ||
                  contains(result, "failed:"))  // a peer was first, and told
          << result;
      EXPECT_LT(std::stod(result.substr(result.find("after ") + 6)), 18.0) << result;
    }
  }
}

TEST(Faults, A2_StoppedBeforeTheFirstGroup) {
  Stopped run;
  run_and_stop(0, "stop", run);
  EXPECT_TRUE(contains(run.log, "rank 0 has not been heard of for ")) << run.log;
  EXPECT_LT(run.seconds, 45.0);
  for (const int other : {1, 2}) {
    const std::string result = result_of(run.folder, other);
    EXPECT_TRUE(contains(result, "comm after ") && contains(result, "connecting")) << result;
  }
}

// A listening socket whose owner never answers, as a process stopped before it could.
class SilentPort final {
 public:
  SilentPort() : fd_(listen_at("127.0.0.1", 0, 0)) {}
  ~SilentPort() { ::close(fd_); }
  SilentPort(const SilentPort&) = delete;
  SilentPort& operator=(const SilentPort&) = delete;
  [[nodiscard]] std::int64_t port() const { return port_of(fd_); }

 private:
  int fd_;
};

std::string comm_error(const GlooOptions& options, double limit_seconds) {
  const auto begin = Clock::now();
  try {
    const auto backend = make_gloo_backend(options);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kComm) << error.what();
    EXPECT_LT(seconds_since(begin), limit_seconds) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

TEST(Faults, A2_RendezvousThatNeverAnswers) {
  const SilentPort port;
  const GlooOptions options{
      .rank = 1, .world_size = 2, .master_port = port.port(), .timeout = milliseconds(1000)};
  const std::string message = comm_error(options, 3.0);
  EXPECT_TRUE(contains(message, "does not answer: rank 0 is stopped")) << message;
}

// Unknown hosts took one to two time-outs, with stack dumps.
TEST(Faults, F13_WrongHosts) {
  GlooOptions options{.rank = 1, .world_size = 2, .master_port = 29500};
  for (const char* host : {"a b", "[nowhere]", "-", "10.0.0.1.2"}) {
    options.master_addr = host;
    const std::string message = comm_error(options, 15.0);  // the resolver's own time
    EXPECT_TRUE(contains(message, "cannot resolve") && contains(message, host) &&
                contains(message, "--master-addr"))
        << message;
  }
  // Addresses kept for documentation: nobody is there, or the network says so at once.
  options.master_addr = "192.0.2.1";
  options.timeout = milliseconds(1000);
  const std::string message = comm_error(options, 3.0);
  EXPECT_TRUE(contains(message, "cannot reach") && contains(message, "192.0.2.1:29500")) << message;
}

TEST(Faults, F13_BracketedAddress) {
  EXPECT_EQ(to_string(resolve_host("[::1]", 1).front()), "::1");
  EXPECT_EQ(to_string(resolve_host("127.0.0.1", 1).front()), "127.0.0.1");
}

// Says something to a port and waits until it is closed, at most a third of a second.
void say_to(std::int64_t port, const std::string& text) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) {
    const timeval limit{.tv_sec = 0, .tv_usec = 300'000};
    ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    (void)::send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    char buffer[256];
    while (::recv(fd, buffer, sizeof(buffer), 0) > 0) {
    }
  }
  ::close(fd);
}

// Local addresses (as the kernel prints them) of listening sockets on the port.
std::vector<std::string> listeners_on(std::int64_t port) {
  char suffix[8];
  std::snprintf(suffix, sizeof(suffix), ":%04X", static_cast<unsigned>(port));
  std::vector<std::string> found;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::istringstream lines(text_of(table));
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string number, local, remote, state;
      words >> number >> local >> remote >> state;
      if (state == "0A" && local.ends_with(suffix)) found.push_back(local);
    }
  }
  return found;
}

// The old rendezvous listened everywhere, and one stranger's connection could end the run.
TEST(Faults, A4_StrangersChangeNothing) {
  LaunchOptions options;
  options.nproc_per_node = 3;
  options.master_port = free_port();
  const TempFolder folder("comm");
  options.command = {worker(), "work", folder.path()};
  int code = -1;
  std::thread launcher([&] { code = launch(options); });
  std::vector<std::string> listeners;
  EXPECT_TRUE(soon([&] { return !(listeners = listeners_on(options.master_port)).empty(); }));
  for (const std::string& address : listeners) {
    EXPECT_TRUE(address.starts_with("0100007F:")) << address << " is not loopback";
  }
  const std::string poison = wire::framed(wire::pack({.op = wire::Op::kSetAbsent,
                                                      .key = RendezvousServer::kFailureKey,
                                                      .value = "\x1b[31mended by a stranger"}));
  say_to(options.master_port, poison);
  say_to(options.master_port, std::string(wire::kDigestBytes, '0') + poison);
  say_to(options.master_port, std::string(1 << 20, '\xFF'));
  {
    c10d::TCPStoreOptions store;
    store.port = static_cast<std::uint16_t>(options.master_port);
    store.timeout = milliseconds(1000);
    store.waitWorkers = false;
    EXPECT_ANY_THROW(c10d::TCPStore("127.0.0.1", store).set("pentatron/0/poison", {1, 2}));
  }
  const RendezvousPlace place{.host = "127.0.0.1", .port = options.master_port, .token = "guessed"};
  try {
    const RendezvousClient stranger(place, milliseconds(2000));
    ADD_FAILURE() << "let in with a guessed token";
  } catch (const Error& error) {
    EXPECT_TRUE(contains(error.what(), "another job's")) << error.what();
  }
  std::ofstream(folder.path() / "stop") << "now";
  launcher.join();
  EXPECT_EQ(code, 0);
}

TEST(Faults, A4_ServerKeepsStrangersOut) {
  const int fd = listen_at("127.0.0.1", 0, 0);
  const std::int64_t port = port_of(fd);
  const RendezvousServer server(fd, "secret");
  RendezvousClient friendly({.port = port, .token = "secret"}, milliseconds(5000));
  friendly.set("a", "1");
  say_to(port, std::string(wire::kDigestBytes, 'a') +
                   wire::framed(wire::pack({.op = wire::Op::kSet, .key = "a", .value = "2"})));
  EXPECT_EQ(friendly.get("a"), "1");
  EXPECT_EQ(friendly.get("b"), std::nullopt);
  EXPECT_EQ(friendly.add("n", 2), 2);
  EXPECT_EQ(friendly.add("n", -5), -3);
  EXPECT_EQ(friendly.count(), 2);
  EXPECT_TRUE(friendly.remove("a"));
  EXPECT_FALSE(friendly.remove("a"));
  // A frame longer than any is the end of the connection, not of the server.
  say_to(port, "");
  const std::string large(3 << 20, 'x');
  friendly.set("large", large);
  EXPECT_EQ(friendly.get("large"), large);
}

// Whose beats end with the connection is gone; who leaves first is not.
TEST(Faults, A2_GoneRanksAreTold) {
  const int fd = listen_at("127.0.0.1", 0, 0);
  const std::int64_t port = port_of(fd);
  const RendezvousServer server(fd, "secret");
  const auto beat = [&](RendezvousClient& client, const char* rank) {
    (void)client.ask({.op = wire::Op::kBeat, .key = rank, .value = "step 7"}, milliseconds(5000));
  };
  {
    RendezvousClient dies({.port = port, .token = "secret"}, milliseconds(5000));
    RendezvousClient leaves({.port = port, .token = "secret"}, milliseconds(5000));
    beat(dies, "3");
    beat(leaves, "2");
    EXPECT_TRUE(soon([&] { return server.live_peers() == 2; }));
    (void)leaves.ask({.op = wire::Op::kLeave, .key = "2", .value = {}}, milliseconds(5000));
    EXPECT_EQ(server.first_gone(), "");
  }
  EXPECT_TRUE(soon([&] { return server.live_peers() == 0; }));
  EXPECT_EQ(server.first_gone(), "rank 3 is gone, last in 'step 7'");
}

// Connections that prove nothing, more than the server keeps at a time.
TEST(Faults, A4_IdleStrangersKeepNobodyOut) {
  const int fd = listen_at("127.0.0.1", 0, 0);
  const std::int64_t port = port_of(fd);
  const RendezvousServer server(fd, "secret");
  RendezvousClient early({.port = port, .token = "secret"}, milliseconds(10'000));
  std::vector<int> idle;
  for (int i = 0; i < 300; ++i) {
    idle.push_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const SocketAddress address = resolve_host("127.0.0.1", port).front();
    EXPECT_EQ(
        ::connect(idle.back(), reinterpret_cast<const sockaddr*>(&address.storage), address.length),
        0);
  }
  early.set("a", "1");
  RendezvousClient late({.port = port, .token = "secret"}, milliseconds(10'000));
  EXPECT_EQ(late.get("a"), "1");
  for (const int one : idle) ::close(one);
}

// One that was started by mistake must not end the job of the first.
TEST(Faults, A4_SecondProcessOfARankHarmsNobody) {
  const GlooOptions first{
      .rank = 0, .world_size = 2, .master_port = free_port(), .timeout = milliseconds(4000)};
  std::thread rank0([&] {
    const std::string message = comm_error(first, 20.0);
    EXPECT_TRUE(contains(message, "rank 1 of 2 did not join")) << message;
  });
  {
    RendezvousClient rank1({.port = first.master_port, .token = job_token(), .rank = 1},
                           milliseconds(10'000));
    EXPECT_EQ(rank1.add("join/1", 1), 1);
    GlooOptions second = first;
    second.rank = 1;
    const std::string message = comm_error(second, 10.0);
    EXPECT_TRUE(contains(message, "twice")) << message;
    EXPECT_EQ(rank1.get(RendezvousServer::kFailureKey), std::nullopt);
  }
  rank0.join();
}

TEST(Faults, A6_WorldSizesThatDifferAreNamed) {
  GlooOptions options{
      .rank = 0, .world_size = 2, .master_port = free_port(), .timeout = milliseconds(20'000)};
  const auto expect_named = [](const GlooOptions& of_rank) {
    const std::string message = comm_error(of_rank, 15.0);
    EXPECT_TRUE(contains(message, "expects a world of")) << message;
  };
  std::thread rank0([&, options] { expect_named(options); });
  options.rank = 1;
  options.world_size = 3;
  expect_named(options);
  rank0.join();
}

TEST(Faults, A6_VersionsThatDifferAreNamed) {
  const int fd = listen_at("127.0.0.1", 0, 0);
  const std::int64_t port = port_of(fd);
  const RendezvousServer server(fd, job_token());
  RendezvousClient rank0({.port = port, .token = job_token()}, milliseconds(10'000));
  EXPECT_EQ(rank0.set_absent("version", "0.0.1 (rank 0)"), "0.0.1 (rank 0)");
  const std::string message = comm_error(
      {.rank = 1, .world_size = 2, .master_port = port, .timeout = milliseconds(20'000)}, 15.0);
  EXPECT_TRUE(contains(message, "rank 1 is pentatron ") && contains(message, "0.0.1 (rank 0)") &&
              contains(message, "one version"))
      << message;
}

// RFC 4231, cases 2 and 6.
TEST(Faults, A4_KeyedDigest) {
  EXPECT_EQ(keyed_digest("Jefe", "what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(keyed_digest(std::string(131, '\xaa'),
                         "Test Using Larger Than Block-Size Key - Hash Key First"),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  EXPECT_NE(random_token(), random_token());
  EXPECT_EQ(random_token().size(), 32U);
}

// torchrun's agent holds the master port: the ranks find each other through its store.
TEST(Faults, A4_RendezvousBesideAnAgentsStore) {
  c10d::TCPStoreOptions served;
  served.port = 0;
  served.isServer = true;
  served.waitWorkers = false;
  const auto agent = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", served);
  LaunchOptions options;
  options.nproc_per_node = 2;
  options.master_port = agent->getPort();
  options.command = {"/usr/bin/env", "TORCHELASTIC_USE_AGENT_STORE=True", worker(), "conformance"};
  EXPECT_EQ(launch(options), 0);
}

// A wrapper script that does not exec: its child went on after the launcher's end.
TEST(Faults, F8_GrandchildrenEndWithTheJob) {
  for (const int signal : {SIGTERM, SIGKILL, 0}) {  // 0: a rank fails
    const TempFolder folder("comm");
    LaunchOptions options;
    options.nproc_per_node = 2;
    options.grace_seconds = 1;
    const std::string both =
        "until [ -s \"$1/rank0.txt\" ] && [ -s \"$1/rank1.txt\" ]; do sleep 0.1; done";
    const std::string end =
        signal == 0 ? "if [ $RANK = 1 ]; then " + both + "; sleep 0.5; exit 7; fi; wait" : "wait";
    options.command = {"sh", "-c", "\"$0\" sleep \"$1\" & " + end, worker(), folder.path()};
    const pid_t launcher = ::fork();
    if (launcher == 0) ::_exit(launch(options));
    std::vector<pid_t> grandchildren;
    for (const int rank : {0, 1}) {
      std::string text;
      ASSERT_TRUE(soon([&] { return contains(text = result_of(folder, rank), "\n"); }));
      grandchildren.push_back(std::stoi(text));
    }
    if (signal != 0) ::kill(launcher, signal);
    int status = 0;
    ASSERT_EQ(::waitpid(launcher, &status, 0), launcher);
    if (signal == 0) {
      EXPECT_EQ(WEXITSTATUS(status), 7);
    }
    for (const pid_t pid : grandchildren) {
      EXPECT_TRUE(soon([&] { return !alive(pid); })) << "signal " << signal;
    }
  }
}

}  // namespace
}  // namespace pentatron::comm
