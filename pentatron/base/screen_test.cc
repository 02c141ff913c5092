// SPDX-License-Identifier: Apache-2.0
#include "pentatron/base/screen.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "pentatron/base/log.h"
#include "pentatron/base/progress_line.h"
#include "pentatron/base/stop_cleanup.h"

namespace pentatron {
namespace {

// What `work` writes to a real pseudo-terminal of that width, in a process of its own.
struct OnTerminal {
  std::string text;
  int status = 0;
};
OnTerminal on_terminal(int columns, const std::function<void()>& work, const char* term = "xterm") {
  int master = -1;
  winsize size{};
  size.ws_row = 24;
  size.ws_col = static_cast<unsigned short>(columns);
  const pid_t pid = ::forkpty(&master, nullptr, nullptr, &size);
  if (pid == 0) {
    ::setenv("TERM", term, 1);
    ::setenv("NO_COLOR", "1", 1);
    ::setenv("LC_ALL", "C", 1);
    work();
    std::fflush(stdout);
    ::_exit(0);
  }
  OnTerminal result;
  char buffer[4096];
  ssize_t got = 0;
  while ((got = ::read(master, buffer, sizeof(buffer))) > 0) {
    result.text.append(buffer, static_cast<std::size_t>(got));
  }
  ::close(master);
  ::waitpid(pid, &result.status, 0);
  return result;
}

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t found = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) {
    ++found;
  }
  return found;
}

void wait(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

TEST(Screen, ALineThatStaysTakesTheLiveOneAway) {
  const OnTerminal seen = on_terminal(40, [] {
    const screen::LiveLine live(STDOUT_FILENO, [](const Terminal& terminal, int) {
      return std::string(static_cast<std::size_t>(terminal.columns + 10), 'x');
    });
    wait(300);
    screen::print("stays");
    wait(400);
  });
  const std::string cut(39, 'x');  // one column stays free
  EXPECT_EQ(count(seen.text, cut + "x"), 0U) << seen.text;
  const std::size_t line = seen.text.find("stays\r\n");
  ASSERT_NE(line, std::string::npos) << seen.text;
  // Before it: the live line, erased. After it: drawn again, and gone at the end.
  EXPECT_GE(count(seen.text.substr(0, line), cut), 1U);
  EXPECT_TRUE(seen.text.substr(0, line).ends_with("\r\x1b[J")) << seen.text;
  EXPECT_GE(count(seen.text.substr(line), cut), 1U);
  EXPECT_TRUE(seen.text.ends_with("\r\x1b[J")) << seen.text;
  EXPECT_EQ(count(seen.text, "\x1b[?25l"), 0U);  // the cursor is never hidden
}

TEST(Screen, ANarrowerTerminalIsCleared) {
  const OnTerminal seen = on_terminal(60, [] {
    const screen::LiveLine live(STDOUT_FILENO, [](const Terminal& terminal, int) {
      return std::string(static_cast<std::size_t>(terminal.columns - 1), 'x');
    });
    wait(300);
    winsize narrow{};
    narrow.ws_row = 24;
    narrow.ws_col = 30;
    ::ioctl(STDOUT_FILENO, TIOCSWINSZ, &narrow);
    wait(500);
  });
  // 59 columns are two rows of 30: one up, then all below cleared, then 29 columns.
  EXPECT_NE(seen.text.find("\x1b[A\r\x1b[J" + std::string(29, 'x') + "\x1b[K"), std::string::npos)
      << seen.text;
}

TEST(Screen, DumbTerminalsAndPipesHaveNoLiveLine) {
  const OnTerminal seen = on_terminal(
      80,
      [] {
        const screen::LiveLine live(STDOUT_FILENO, [](const Terminal&, int) { return "x"; });
        wait(400);
        log::warn("careful");
        log::error("broken");
      },
      "dumb");
  EXPECT_EQ(seen.text, "warning: careful\r\nerror: broken\r\n");
}

TEST(Screen, SharedTerminalsClearTheLineOfOthers) {
  const OnTerminal seen = on_terminal(80, [] {
    screen::share();
    log::warn("careful");
  });
  EXPECT_EQ(seen.text, "\r\x1b[Kwarning: careful\r\n");
}

TEST(Screen, TerseLeavesDetailsOut) {
  const OnTerminal seen = on_terminal(80, [] {
    screen::set_terse(true);
    log::print_line("details");
    screen::print("result");
  });
  EXPECT_EQ(seen.text, "result\r\n");
}

TEST(Screen, CtrlCTellsAndEnds) {
  const OnTerminal seen = on_terminal(80, [] {
    const StopCleanup cleanup;
    const screen::StopNotice notice(
        [](int signal) { return "stopped by signal " + std::to_string(signal); });
    const screen::LiveLine live(STDOUT_FILENO, [](const Terminal&, int) { return "working"; });
    wait(300);
    ::raise(SIGINT);
    wait(5000);
  });
  EXPECT_TRUE(WIFSIGNALED(seen.status) && WTERMSIG(seen.status) == SIGINT);
  EXPECT_TRUE(seen.text.ends_with("\r\x1b[Jstopped by signal 2\r\n")) << seen.text;
}

TEST(ProgressLine, FitsAnyWidth) {
  ProgressLine progress({.what = "imported", .unit = "bytes", .line_seconds = 0});
  EXPECT_EQ(progress.text({}, 0, 2.0), "|  imported 0 B");
  progress.expect(4'000'000'000);
  progress.add(1'000'000'000);
  progress.note("100 MB/s");
  const std::string wide = progress.text({.columns = 120}, 0, 10.0);
  EXPECT_NE(wide.find(" 25 %"), std::string::npos) << wide;
  EXPECT_NE(wide.find("imported 1.00 GB"), std::string::npos) << wide;
  EXPECT_NE(wide.find("100 MB/s"), std::string::npos) << wide;
  EXPECT_NE(wide.find("30.0 s left"), std::string::npos) << wide;
  for (const int columns : {60, 40, 20, 5}) {
    EXPECT_LT(display_width(progress.text({.columns = columns}, 0, 10.0)), columns);
  }
  EXPECT_NE(progress.text({.columns = 30}, 0, 10.0).find("imported"), std::string::npos);
}

}  // namespace
}  // namespace pentatron
