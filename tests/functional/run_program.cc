// SPDX-License-Identifier: Apache-2.0
#include "tests/functional/run_program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

extern char** environ;

namespace pentatron::functional {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr uid_t kNobody = 65534;
constexpr std::array kDropped = {"RANK",
                                 "WORLD_SIZE",
                                 "LOCAL_RANK",
                                 "LOCAL_WORLD_SIZE",
                                 "MASTER_ADDR",
                                 "MASTER_PORT",
                                 "SLURM_PROCID",
                                 "SLURM_NTASKS",
                                 "OMPI_COMM_WORLD_RANK",
                                 "OMPI_COMM_WORLD_SIZE",
                                 "PENTATRON_FAULT_STOP_AT",
                                 "PENTATRON_FAULT_LOG",
                                 "PENTATRON_LOG_LEVEL"};

std::vector<std::string> full_environment(const std::map<std::string, std::string>& added) {
  std::map<std::string, std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string line(*entry);
    const std::size_t equals = line.find('=');
    if (equals != std::string::npos) all[line.substr(0, equals)] = line.substr(equals + 1);
  }
  for (const char* name : kDropped) all.erase(name);
  all["OMP_NUM_THREADS"] = std::string(1, '1');  // g++ 12 sees an overlap in = "1"
  for (const auto& [name, value] : added) all[name] = value;
  std::vector<std::string> lines;
  for (const auto& [name, value] : all) lines.push_back(name + "=" + value);
  return lines;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

void require(bool condition, const char* what) {
  if (!condition) throw std::runtime_error(fmt::format("{}: {}", what, ::strerror(errno)));
}

// One end of the child's output; collects what comes.
class Stream final {
 public:
  explicit Stream(std::string& text) : text_(text) {
    require(::pipe2(fds_.data(), O_CLOEXEC) == 0, "pipe");
    require(::fcntl(fds_[0], F_SETFL, O_NONBLOCK) == 0, "fcntl");
  }
  ~Stream() {
    for (const int fd : fds_) {
      if (fd >= 0) ::close(fd);
    }
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  [[nodiscard]] int reader() const { return fds_[0]; }
  [[nodiscard]] int writer() const { return fds_[1]; }
  [[nodiscard]] bool open() const { return fds_[0] >= 0; }
  void close_writer() {
    ::close(fds_[1]);
    fds_[1] = -1;
  }
  // Takes what is there; at the end of the stream closes it.
  void drain() {
    std::array<char, 16384> block;
    while (open()) {
      const ssize_t got = ::read(fds_[0], block.data(), block.size());
      if (got > 0) {
        text_.append(block.data(), static_cast<std::size_t>(got));
      } else if (got == 0) {
        ::close(fds_[0]);
        fds_[0] = -1;
      } else {
        return;
      }
    }
  }

 private:
  std::string& text_;
  std::array<int, 2> fds_{-1, -1};
};

// In the child: system calls only.
[[noreturn]] void become(const Stream& out, const Stream& err, char** argv, char** envp,
                         bool as_nobody) {
  constexpr int kCannotStart = 127;
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int null = ::open("/dev/null", O_RDONLY);
  ::dup2(null, STDIN_FILENO);
  ::dup2(out.writer(), STDOUT_FILENO);
  ::dup2(err.writer(), STDERR_FILENO);
  if (as_nobody && (::setgid(kNobody) != 0 || ::setuid(kNobody) != 0)) ::_exit(kCannotStart);
  ::execve(argv[0], argv, envp);
  ::_exit(kCannotStart);
}

void wait_for_output(Stream& out, Stream& err, milliseconds limit) {
  std::array<pollfd, 2> fds{pollfd{out.reader(), POLLIN, 0}, pollfd{err.reader(), POLLIN, 0}};
  if (!out.open() && !err.open()) {
    ::usleep(static_cast<useconds_t>(limit.count() * 1000));
    return;
  }
  ::poll(fds.data(), fds.size(), static_cast<int>(limit.count()));
  out.drain();
  err.drain();
}

}  // namespace

std::string ProgramResult::describe() const {
  const std::string end = timed_out       ? "ran past its time"
                          : signal != 0   ? fmt::format("ended by signal {}", signal)
                          : left_children ? "ended, but left processes behind"
                                          : fmt::format("exit code {}", exit_code);
  return fmt::format("{}\n--- stdout\n{}\n--- stderr\n{}", end, out, err);
}

ProgramResult run_program(const ProgramRequest& request) {
  const char* program = std::getenv("PENTATRON_BIN");
  if (program == nullptr) throw std::runtime_error("PENTATRON_BIN names no program");
  std::vector<std::string> words{program};
  words.insert(words.end(), request.words.begin(), request.words.end());
  std::vector<std::string> lines = full_environment(request.environment);
  std::vector<char*> argv = pointers(words);
  std::vector<char*> envp = pointers(lines);

  ProgramResult result;
  Stream out(result.out);
  Stream err(result.err);
  const pid_t pid = ::fork();
  require(pid >= 0, "fork");
  if (pid == 0) become(out, err, argv.data(), envp.data(), request.as_nobody);
  out.close_writer();
  err.close_writer();

  const RunningProgram running{pid, result.out, result.err};
  const Clock::time_point deadline = Clock::now() + request.timeout;
  const milliseconds pause(request.observe ? 1 : 20);
  int status = 0;
  while (::waitpid(pid, &status, WNOHANG) != pid) {
    wait_for_output(out, err, pause);
    if (request.observe) request.observe(running);
    if (Clock::now() < deadline || result.timed_out) continue;
    result.timed_out = true;
    ::kill(-pid, SIGKILL);
  }
  const Clock::time_point ended = Clock::now();
  while ((out.open() || err.open()) && Clock::now() - ended < std::chrono::seconds(1)) {
    wait_for_output(out, err, milliseconds(5));
  }
  result.left_children = out.open() || err.open();
  if (result.left_children) ::kill(-pid, SIGKILL);
  if (WIFSIGNALED(status)) {
    result.signal = WTERMSIG(status);
  } else {
    result.exit_code = WEXITSTATUS(status);
  }
  return result;
}

ProgramResult call(std::vector<std::string> words) {
  return run_program({.words = std::move(words)});
}

std::vector<pid_t> children_of(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/task/{}/children", pid, pid));
  std::vector<pid_t> children;
  for (pid_t child = 0; file >> child;) {
    std::string name;
    std::getline(std::ifstream(fmt::format("/proc/{}/comm", child)), name);
    if (name != "launch-guard") children.push_back(child);
  }
  return children;
}

std::int64_t process_status(pid_t pid, const std::string& name) {
  std::ifstream file(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(name + ":")) continue;
    std::istringstream rest(line.substr(name.size() + 1));
    std::int64_t value = 0;
    rest >> value;
    return value;
  }
  return 0;
}

namespace {

// Calls visit(thread id, folder of the thread in /proc).
template <typename Visit>
void for_each_thread(pid_t pid, const Visit& visit) {
  namespace fs = std::filesystem;
  std::error_code code;
  const fs::path tasks = fs::path("/proc") / std::to_string(pid) / "task";
  for (fs::directory_iterator it(tasks, code), end; !code && it != end; it.increment(code)) {
    visit(static_cast<pid_t>(std::stoi(it->path().filename().string())), it->path());
  }
}

}  // namespace

std::size_t threads_named(pid_t pid, const std::string& name) {
  std::size_t found = 0;
  for_each_thread(pid, [&](pid_t, const std::filesystem::path& folder) {
    std::ifstream file(folder / "comm");
    std::string line;
    if (std::getline(file, line) && line == name) ++found;
  });
  return found;
}

std::map<pid_t, double> thread_seconds(pid_t pid) {
  std::map<pid_t, double> seconds;
  for_each_thread(pid, [&](pid_t thread, const std::filesystem::path& folder) {
    std::ifstream file(folder / "stat");
    std::string line;
    std::getline(file, line);
    // After the name in parentheses: the state is field 3, utime and stime are 14 and 15.
    std::istringstream rest(line.substr(std::min(line.size(), line.rfind(')') + 1)));
    std::string skipped;
    for (int field = 3; field < 14; ++field) rest >> skipped;
    double user = 0;
    double system = 0;
    if (rest >> user >> system) {
      seconds[thread] = (user + system) / static_cast<double>(::sysconf(_SC_CLK_TCK));
    }
  });
  return seconds;
}

}  // namespace pentatron::functional
