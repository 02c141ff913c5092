// SPDX-License-Identifier: Apache-2.0
#include "pentatron/comm/launch.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string_view>
#include <thread>

#include "pentatron/base/error.h"
#include "pentatron/base/log.h"
#include "pentatron/base/screen.h"
#include "pentatron/comm/job_environment.h"
#include "pentatron/comm/rank_errors.h"
#include "pentatron/comm/rank_output.h"
#include "pentatron/comm/rendezvous_client.h"
#include "pentatron/comm/rendezvous_server.h"

extern char** environ;

namespace pentatron::comm {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kExecFailed = 127;
constexpr std::chrono::milliseconds kCauseWait{1000};
constexpr std::chrono::milliseconds kTellWithin{300};
constexpr std::chrono::milliseconds kAlikeWait{500};

struct Child {
  pid_t pid = -1;
  int rank = 0;
  bool running = false;
  int status = 0;  // as of waitpid, when it has ended
};

// Blocks the signals that launch() handles and gives them back at the end.
class SignalBlock final {
 public:
  SignalBlock() {
    sigemptyset(&set_);
    for (int signal :
         {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT, SIGCHLD}) {
      sigaddset(&set_, signal);
    }
    pthread_sigmask(SIG_BLOCK, &set_, &former_);
    // Where a parent left it ignored, the system would forget how the ranks have ended.
    ::signal(SIGCHLD, SIG_DFL);
  }
  ~SignalBlock() { pthread_sigmask(SIG_SETMASK, &former_, nullptr); }
  SignalBlock(const SignalBlock&) = delete;
  SignalBlock& operator=(const SignalBlock&) = delete;

  [[nodiscard]] const sigset_t& former() const { return former_; }
  // The next signal within the time, or 0.
  [[nodiscard]] int wait(std::chrono::milliseconds limit, siginfo_t& info) const {
    const timespec time{limit.count() / 1000, limit.count() % 1000 * 1'000'000};
    const int signal = sigtimedwait(&set_, &info, &time);
    return signal > 0 ? signal : 0;
  }

 private:
  sigset_t set_;
  sigset_t former_;
};

// What the ranks of this launcher share.
struct Job {
  int port = 0;
  std::string token = {};
  std::string error_socket = {};
};

std::vector<std::string> environment_of(const LaunchOptions& options, const Job& job,
                                        int local_rank) {
  std::vector<std::pair<std::string, std::string>> own = {
      {"RANK", std::to_string(options.node_rank * options.nproc_per_node + local_rank)},
      {"LOCAL_RANK", std::to_string(local_rank)},
      {"WORLD_SIZE", std::to_string(options.nnodes * options.nproc_per_node)},
      {"LOCAL_WORLD_SIZE", std::to_string(options.nproc_per_node)},
      {"MASTER_ADDR", options.master_addr},
      {"MASTER_PORT", std::to_string(job.port)},
      {RankErrors::kVariable, job.error_socket},
  };
  if (!job.token.empty()) own.emplace_back(kJobTokenVariable, job.token);
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view line(*entry);
    const std::string_view name = line.substr(0, line.find('='));
    // The store of another launcher is not passed on.
    if (name.starts_with("TORCHELASTIC_")) continue;
    const bool replaced = std::any_of(own.begin(), own.end(),
                                      [&](const auto& variable) { return variable.first == name; });
    if (!replaced) result.emplace_back(line);
  }
  for (const auto& [name, value] : own) result.push_back(fmt::format("{}={}", name, value));
  return result;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

// Everything that allocates happens before the fork; the child only makes system calls. The pipe
// closes on exec and carries errno if that fails.
pid_t start(const LaunchOptions& options, const Job& job, int local_rank, int stderr_fd,
            const sigset_t& signals) {
  std::vector<std::string> command = options.command;
  std::vector<std::string> environment = environment_of(options, job, local_rank);
  const std::vector<char*> argv = pointers(command);
  const std::vector<char*> envp = pointers(environment);
  int status_pipe[2];
  PENTATRON_CHECK(::pipe2(status_pipe, O_CLOEXEC) == 0, kIo, "launch: pipe: {}",
                  std::strerror(errno));
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::setpgid(0, 0);                     // what the command starts ends with it
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // no orphans when the launcher is killed
    if (::getppid() != parent) ::_exit(kExecFailed);
    // Outside the terminal's foreground group a read from it would stop the process for ever.
    if (::isatty(STDIN_FILENO) == 1) {
      const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
      if (nothing >= 0) ::dup2(nothing, STDIN_FILENO);
    }
    if (stderr_fd >= 0) ::dup2(stderr_fd, STDERR_FILENO);
    ::sigprocmask(SIG_SETMASK, &signals, nullptr);
    ::execvpe(argv[0], argv.data(), envp.data());
    const int error = errno;
    [[maybe_unused]] const auto written = ::write(status_pipe[1], &error, sizeof(error));
    ::_exit(kExecFailed);
  }
  const int fork_error = errno;
  ::close(status_pipe[1]);
  int exec_error = 0;
  ssize_t got = 0;
  if (pid > 0) {
    do {
      got = ::read(status_pipe[0], &exec_error, sizeof(exec_error));
    } while (got < 0 && errno == EINTR);
  }
  ::close(status_pipe[0]);
  PENTATRON_CHECK(pid > 0, kIo, "launch: cannot start a process: {}", std::strerror(fork_error));
  if (got > 0) {
    ::waitpid(pid, nullptr, 0);
    PENTATRON_THROW(kConfig, "launch: cannot run '{}': {}", options.command[0],
                    std::strerror(exec_error));
  }
  return pid;
}

// To the ranks and all that they have started in their process groups, which may outlive them.
void send_all(const std::vector<Child>& children, int signal) {
  for (const Child& child : children) ::kill(-child.pid, signal);
}

// What the ranks have left behind, and at last the ranks themselves from the system's table.
void end_groups(const std::vector<Child>& children) {
  send_all(children, SIGKILL);
  for (const Child& child : children) ::waitpid(child.pid, nullptr, 0);
}

// A process that ends the ranks' groups when the launcher is killed, which no signal handler can
// do. It hears of that, and of the groups, through a socket.
class Guard final {
 public:
  Guard() {
    int ends[2];
    // Not a pipe: writing to one whose reader has been killed would be a signal.
    PENTATRON_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, kIo,
                    "launch: socketpair: {}", std::strerror(errno));
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::close(ends[1]);
      run(ends[0]);
    }
    const int error = errno;
    ::close(ends[0]);
    fd_ = ends[1];
    pid_ = pid;
    if (pid < 0) ::close(fd_);
    PENTATRON_CHECK(pid > 0, kIo, "launch: cannot start a process: {}", std::strerror(error));
  }
  ~Guard() {
    tell(0);  // in good order: nothing is left to be ended
    ::close(fd_);
    ::waitpid(pid_, nullptr, 0);
  }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  void tell(pid_t group) const {
    [[maybe_unused]] const auto written = ::send(fd_, &group, sizeof(group), MSG_NOSIGNAL);
  }

 private:
  // System calls only, as after every fork of a process with threads.
  [[noreturn]] static void run(int fd) {
    constexpr int kMaxGroups = 4096;
    static pid_t groups[kMaxGroups];
    ::setpgid(0, 0);  // a key of the terminal is not meant for it
    ::prctl(PR_SET_NAME, "launch-guard");
    const int own = ::dup2(fd, STDERR_FILENO + 1);
    for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::close(standard);
    ::close_range(static_cast<unsigned>(own) + 1, ~0U, 0);
    int count = 0;
    pid_t group = 0;
    while (true) {
      const ssize_t got = ::read(own, &group, sizeof(group));
      if (got < 0 && errno == EINTR) continue;
      if (got != sizeof(group)) break;
      if (group == 0) ::_exit(0);
      if (count < kMaxGroups) groups[count++] = group;
    }
    for (int i = 0; i < count; ++i) ::kill(-groups[i], SIGKILL);
    ::_exit(0);
  }

  int fd_ = -1;
  pid_t pid_ = -1;
};

bool any_running(const std::vector<Child>& children) {
  return std::any_of(children.begin(), children.end(), [](const Child& c) { return c.running; });
}

int code_of(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

// How likely this end is the cause rather than the echo of another rank's: a signal first, then an
// own error, then the report that a peer is gone.
int severity(int status) {
  if (WIFSIGNALED(status)) return 3;
  if (WEXITSTATUS(status) == 0) return 0;
  return WEXITSTATUS(status) == exit_code(ErrorKind::kComm) ? 1 : 2;
}

// Whether the child has ended, and how. It stays in the system's table, so that its number cannot
// become another process group's, which send_all() would hit.
bool has_ended(Child& child) {
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(child.pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid != child.pid) {
    return false;
  }
  child.status =
      info.si_code == CLD_EXITED ? W_EXITCODE(info.si_status, 0) : W_EXITCODE(0, info.si_status);
  return true;
}

// Notes the children that have ended; returns the gravest of them, if any ended badly.
const Child* reap(std::vector<Child>& children) {
  const Child* worst = nullptr;
  for (Child& child : children) {
    if (!child.running || !has_ended(child)) continue;
    child.running = false;
    if (severity(child.status) > (worst == nullptr ? 0 : severity(worst->status))) worst = &child;
  }
  return worst;
}

// A rank that only reports a lost peer may end before the peer that failed: give that one a moment,
// so that the cause is named.
const Child* find_cause(std::vector<Child>& children, const Child* first) {
  const auto deadline = Clock::now() + kCauseWait;
  while (severity(first->status) == 1 && any_running(children) && Clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const Child* next = reap(children);
    if (next != nullptr && severity(next->status) > 1) first = next;
  }
  return first;
}

// "was ended by signal 9 (Killed)"
std::string end_of(const Child& child) {
  if (!WIFSIGNALED(child.status)) {
    return fmt::format("ended with exit code {}", WEXITSTATUS(child.status));
  }
  return fmt::format("was ended by signal {} ({})", WTERMSIG(child.status),
                     strsignal(WTERMSIG(child.status)));
}

// Ranks of one job meet a bad option or a missing file alike, a moment apart: those that are about
// to say so may, so that it is told once, with all of them.
void wait_for_words(std::vector<Child>& children, const Child& failed, RankErrors& errors) {
  const auto silent = [&](const Child& child) {
    return child.running && !errors.has_word_of(child.rank);
  };
  const auto deadline = Clock::now() + kAlikeWait;
  for (errors.collect(); errors.has_word_of(failed.rank) && Clock::now() < deadline &&
                         std::any_of(children.begin(), children.end(), silent);
       errors.collect()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    static_cast<void>(reap(children));
  }
  errors.collect();
}

void report(const Child& child, std::size_t num_ranks, RankOutput& output, RankErrors& errors) {
  const std::string written = output.last_lines(child.rank);
  errors.print();
  if (errors.all_alike(num_ranks) && severity(child.status) == 2) return;  // said by all of them
  const std::string lines = errors.has_word_of(child.rank) ? "" : written;
  log::error("launch: rank {} (pid {}) {}; ending the other ranks{}", child.rank, child.pid,
             end_of(child), lines.empty() ? lines : "; its last lines:" + lines);
}

// The ranks of other machines ask rank 0 why their peer is gone. What that one has told itself
// stands; a loss that it has only heard of is no reason.
void tell_other_machines(const Child& child, const LaunchOptions& options) {
  if (options.nnodes == 1 || severity(child.status) < 2) return;
  try {
    RendezvousClient rank0({.host = options.master_addr,
                            .port = options.master_port,
                            .token = options.job_token.empty() ? job_token() : options.job_token,
                            .rank = child.rank},
                           kTellWithin);
    static_cast<void>(rank0.set_absent(RendezvousServer::kFailureKey,
                                       fmt::format("rank {} {}", child.rank, end_of(child))));
  } catch (const Error& error) {
    log::debug("the other machines were not told: {}", error.what());
  }
}

constexpr int kGraceOfFailure = 1, kGraceWhenAsked = 10;

int supervise(std::vector<Child>& children, RankOutput& output, RankErrors& errors,
              const SignalBlock& signals, const LaunchOptions& options) {
  using std::chrono::milliseconds;
  int result = 0;
  Clock::time_point deadline = Clock::time_point::max();
  int grace = 0;  // seconds
  bool asked_to_stop = false;
  int asked = 0;  // the signal that asked
  while (true) {
    const Child* failed = reap(children);
    if (failed != nullptr && result == 0) {
      failed = find_cause(children, failed);
      result = code_of(failed->status);
      // Who was told to end, ended as told: the ranks say what is kept.
      const bool as_told = WIFSIGNALED(failed->status) && WTERMSIG(failed->status) == asked;
      if (!as_told) tell_other_machines(*failed, options);
      if (!asked_to_stop) wait_for_words(children, *failed, errors);
      // After a forwarded signal the others are ending by themselves; the grace limits them all the
      // same.
      if (!asked_to_stop) send_all(children, SIGTERM);
      if (!as_told) report(*failed, children.size(), output, errors);
      grace = options.grace_seconds.value_or(asked_to_stop ? kGraceWhenAsked : kGraceOfFailure);
      deadline = Clock::now() + std::chrono::seconds(grace);
    }
    errors.collect();
    // A script may go on behind a command of ours that failed.
    if (result != 0 || !any_running(children) || errors.has_waited(kAlikeWait)) errors.print();
    if (!any_running(children)) return result;
    if (Clock::now() >= deadline) {
      log::error("launch: ranks still run {} s after SIGTERM; killing them", grace);
      send_all(children, SIGKILL);
      deadline = Clock::time_point::max();
    }
    siginfo_t info{};
    const int signal = signals.wait(milliseconds(100), info);
    if (signal == 0 || signal == SIGCHLD || signal == SIGCONT) continue;
    if (signal == SIGTSTP) {  // Ctrl-Z: all of them, then ourselves until somebody says go on
      send_all(children, SIGTSTP);
      ::raise(SIGSTOP);
      send_all(children, SIGCONT);
      continue;
    }
    if (signal == SIGTERM || signal == SIGINT || signal == SIGQUIT) {
      asked_to_stop = true;
      asked = signal;
    }
    // A key of the terminal (Ctrl-C) reaches us alone: the ranks are in groups of their own.
    send_all(children, signal);
  }
}

}  // namespace

int free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  const bool found =
      fd >= 0 && ::bind(fd, generic, length) == 0 && ::getsockname(fd, generic, &length) == 0;
  const int error = errno;
  if (fd >= 0) ::close(fd);
  PENTATRON_CHECK(found, kComm, "no free TCP port on 127.0.0.1: {}", std::strerror(error));
  return ntohs(address.sin_port);
}

int launch(const LaunchOptions& options) {
  PENTATRON_CHECK(!options.command.empty(), kConfig, "launch: no command was given");
  PENTATRON_CHECK(options.nproc_per_node >= 1 && options.nnodes >= 1, kConfig,
                  "launch: --nproc-per-node {} and --nnodes {} must be at least 1",
                  options.nproc_per_node, options.nnodes);
  PENTATRON_CHECK(options.node_rank >= 0 && options.node_rank < options.nnodes, kConfig,
                  "launch: --node-rank {} is outside 0 to {}", options.node_rank,
                  options.nnodes - 1);
  PENTATRON_CHECK(options.master_port >= 0 && options.master_port <= 65535, kConfig,
                  "launch: --master-port {} is outside 0 to 65535", options.master_port);
  PENTATRON_CHECK(options.master_port > 0 || options.nnodes == 1, kConfig,
                  "launch: several nodes need one --master-port that all of them name");
  const int port = options.master_port > 0 ? options.master_port : free_port();
  // Other machines' launchers could not know what this one draws.
  RankErrors errors(options.nnodes * options.nproc_per_node);
  const Job job{.port = port,
                .token = options.nnodes == 1 ? random_token() : options.job_token,
                .error_socket = errors.name()};
  screen::share();
  const SignalBlock signals;
  const Guard guard;
  RankOutput output;
  std::vector<Child> children;
  try {
    for (int local_rank = 0; local_rank < options.nproc_per_node; ++local_rank) {
      Child child;
      child.rank = options.node_rank * options.nproc_per_node + local_rank;
      child.pid =
          start(options, job, local_rank, output.descriptor_for(child.rank), signals.former());
      output.started(child.rank);
      child.running = true;
      guard.tell(child.pid);
      children.push_back(child);
    }
  } catch (...) {
    end_groups(children);
    throw;
  }
  const int code = supervise(children, output, errors, signals, options);
  end_groups(children);
  return code;
}

}  // namespace pentatron::comm
