// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <regex>

#include "tests/functional/tiny_run.h"

// The program on a real pseudo-terminal: what stands on the screen, at several widths, with several
// ranks, and after Ctrl-C.
namespace pentatron::functional {
namespace {

using Clock = std::chrono::steady_clock;
using Words = std::vector<std::string>;

// As much of a terminal as the program uses: lines, and a cursor that goes back and erases.
class Screen final {
 public:
  explicit Screen(std::size_t columns) : columns_(columns) {}

  void feed(const std::string& text) {
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '\x1b') {
        i = escape(text, i);
      } else if (text[i] == '\r') {
        column_ = 0;
      } else if (text[i] == '\n') {
        if (++row_ == lines_.size()) lines_.emplace_back();
      } else {
        put(text[i]);
      }
    }
  }
  [[nodiscard]] const std::vector<std::string>& lines() const { return lines_; }
  [[nodiscard]] std::string text() const {
    std::string all;
    for (const std::string& line : lines_) all += line + "\n";
    return all;
  }
  [[nodiscard]] bool wrapped() const { return wrapped_; }
  [[nodiscard]] std::size_t rows_with(const std::string& pattern) const {
    const std::regex found(pattern);
    return static_cast<std::size_t>(
        std::count_if(lines_.begin(), lines_.end(),
                      [&](const std::string& line) { return std::regex_search(line, found); }));
  }

 private:
  void put(char c) {
    if (column_ == columns_) {
      wrapped_ = true;
      column_ = 0;
      if (++row_ == lines_.size()) lines_.emplace_back();
    }
    std::string& line = lines_[row_];
    if (line.size() <= column_) line.resize(column_ + 1, ' ');
    line[column_++] = c;
  }
  std::size_t escape(const std::string& text, std::size_t at) {
    std::size_t end = at + 2;
    while (end < text.size() && (text[end] < '@' || text[end] > '~')) ++end;
    if (end >= text.size()) return text.size();
    std::string& line = lines_[row_];
    if (text[end] == 'A' && row_ > 0) --row_;
    if (text[end] == 'K' || text[end] == 'J') line.resize(std::min(line.size(), column_));
    if (text[end] == 'J') lines_.resize(row_ + 1);
    return end;
  }

  std::size_t columns_;
  std::vector<std::string> lines_{1};
  std::size_t row_ = 0;
  std::size_t column_ = 0;
  bool wrapped_ = false;
};

struct Shown {
  Screen screen;
  std::string raw;
  int status = 0;
  [[nodiscard]] std::string describe() const { return screen.text() + "\nraw:\n" + raw; }
};

// `type`: called with all that came so far; what it returns is typed.
Shown on_terminal(int columns, const Words& words,
                  const std::function<std::string(const std::string&)>& type = {}) {
  std::vector<std::string> all{std::getenv("PENTATRON_BIN")};
  all.insert(all.end(), words.begin(), words.end());
  std::vector<char*> argv;
  for (std::string& word : all) argv.push_back(word.data());
  argv.push_back(nullptr);
  winsize size{};
  size.ws_row = 24;
  size.ws_col = static_cast<unsigned short>(columns);
  int master = -1;
  const pid_t pid = ::forkpty(&master, nullptr, nullptr, &size);
  if (pid == 0) {
    ::setenv("TERM", "xterm", 1);
    ::setenv("NO_COLOR", "1", 1);
    ::setenv("LC_ALL", "C", 1);
    ::setenv("OMP_NUM_THREADS", "1", 1);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  Shown shown{.screen = Screen(static_cast<std::size_t>(columns)), .raw = {}};
  const Clock::time_point deadline = Clock::now() + std::chrono::seconds(60);
  char buffer[4096];
  while (Clock::now() < deadline) {
    pollfd one{.fd = master, .events = POLLIN, .revents = 0};
    if (::poll(&one, 1, 100) == 0) continue;
    const ssize_t got = ::read(master, buffer, sizeof(buffer));
    if (got <= 0) break;
    shown.raw.append(buffer, static_cast<std::size_t>(got));
    const std::string keys = type ? type(shown.raw) : "";
    if (!keys.empty()) {
      EXPECT_EQ(::write(master, keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
    }
  }
  ::kill(-pid, SIGKILL);  // where it is too late
  ::close(master);
  ::waitpid(pid, &shown.status, 0);
  shown.screen.feed(shown.raw);
  return shown;
}

Options watched(const std::filesystem::path& folder) {
  return saving(base(), folder, 2)
      .with("--train-iters", 4)
      .with("--log-interval", 1)
      .with("--eval-interval", 2)
      .with("--eval-iters", 1)
      .with("--split", "80,20,0");
}

}  // namespace

TEST(TerminalView, CompactLinesAtEveryWidth) {
  for (const int columns : {60, 80, 200}) {
    SCOPED_TRACE(columns);
    const std::filesystem::path folder = new_folder();
    // A short path, so that the run's own words decide.
    const std::filesystem::path before = std::filesystem::current_path();
    std::filesystem::current_path(folder);
    const Shown shown = on_terminal(columns, watched("kept").words("pretrain_gpt"));
    std::filesystem::current_path(before);
    ASSERT_TRUE(WIFEXITED(shown.status) && WEXITSTATUS(shown.status) == 0) << shown.describe();
    EXPECT_FALSE(shown.screen.wrapped()) << shown.describe();
    for (int step = 1; step <= 4; ++step) {
      EXPECT_EQ(shown.screen.rows_with("^" + std::to_string(step) + "/4  loss [0-9.]+  .*tok/s"),
                1U)
          << shown.describe();
    }
    EXPECT_GE(shown.screen.rows_with("^2/4  validation  loss "), 1U) << shown.describe();
    EXPECT_EQ(shown.screen.rows_with("^4/4  saved in kept/iter_0000004"), 1U) << shown.describe();
    EXPECT_EQ(shown.screen.rows_with("^done: 4 iterations in "), 1U) << shown.describe();
    // None of Megatron's lines, no dump of arguments, nothing of the live line left.
    EXPECT_EQ(shown.screen.rows_with("iteration +[0-9]+/"), 0U) << shown.describe();
    EXPECT_EQ(shown.screen.rows_with("\\.\\.\\.\\.\\.\\."), 0U) << shown.describe();
    EXPECT_LT(shown.screen.lines().size(), 24U) << shown.describe();
    EXPECT_EQ(shown.screen.lines().back(), "") << shown.describe();
    // It was there, and the cursor was never hidden.
    EXPECT_NE(shown.raw.find("starting"), std::string::npos) << shown.raw;
    EXPECT_EQ(shown.raw.find("\x1b[?25l"), std::string::npos);
  }
}

// More of a wide terminal is used.
TEST(TerminalView, WidthDecidesWhatIsShown) {
  const Words words = base().with("--log-interval", 1).words("pretrain_gpt");
  const Shown narrow = on_terminal(40, words);
  const Shown wide = on_terminal(200, words);
  EXPECT_FALSE(narrow.screen.wrapped()) << narrow.describe();
  EXPECT_EQ(narrow.screen.rows_with("^3/3  loss .*  norm "), 0U) << narrow.describe();
  EXPECT_EQ(wide.screen.rows_with("^3/3  loss .*  lr .*  norm .*  batch "), 1U) << wide.describe();
}

TEST(TerminalView, SeveralRanksSpeakThroughOne) {
  Words words{"launch", "--nproc-per-node", "2"};
  const Words command = base().with("--log-interval", 1).words("pretrain_gpt");
  words.insert(words.end(), command.begin(), command.end());
  const Shown shown = on_terminal(80, words);
  ASSERT_TRUE(WIFEXITED(shown.status) && WEXITSTATUS(shown.status) == 0) << shown.describe();
  EXPECT_FALSE(shown.screen.wrapped()) << shown.describe();
  for (const char* step : {"1", "2", "3"}) {
    EXPECT_EQ(shown.screen.rows_with(std::string("^") + step + "/3  loss "), 1U)
        << shown.describe();
  }
  EXPECT_EQ(shown.screen.rows_with("^on     2 ranks, data 2"), 1U) << shown.describe();
  EXPECT_EQ(shown.screen.rows_with("^done: 3 iterations"), 1U) << shown.describe();
  EXPECT_LT(shown.screen.lines().size(), 12U) << shown.describe();
}

TEST(TerminalView, CtrlCSaysWhatIsKept) {
  const std::filesystem::path folder = new_folder();
  const auto press_at = [](const std::string& what) {
    return [what, pressed = false](const std::string& seen) mutable -> std::string {
      if (pressed || seen.find(what) == std::string::npos) return "";
      pressed = true;
      return "\x03";
    };
  };
  const Options endless =
      saving(base(), folder, 5).with("--train-iters", 1'000'000).with("--log-interval", 1);
  const Shown kept = on_terminal(80, endless.words("pretrain_gpt"), press_at("7/1000000"));
  EXPECT_TRUE(WIFSIGNALED(kept.status) && WTERMSIG(kept.status) == SIGINT) << kept.describe();
  EXPECT_NE(kept.raw.find("stopped by Ctrl-C at iteration "), std::string::npos) << kept.describe();
  EXPECT_NE(kept.raw.find("--load " + folder.string() + " goes on from there"), std::string::npos)
      << kept.describe();
  const Options nothing = base().with("--train-iters", 1'000'000).with("--log-interval", 1);
  Words launched{"launch", "--nproc-per-node", "2"};
  const Words command = nothing.words("pretrain_gpt");
  launched.insert(launched.end(), command.begin(), command.end());
  const Shown lost = on_terminal(80, launched, press_at("3/1000000"));
  EXPECT_NE(lost.raw.find("nothing is kept, this run has no --save"), std::string::npos)
      << lost.describe();
  EXPECT_EQ(lost.raw.find("was ended by signal"), std::string::npos) << lost.describe();
}

TEST(TerminalView, ErrorsHaveNoDate) {
  const Shown shown = on_terminal(80, {"pretrain_gpt", "--no-such-option"});
  EXPECT_TRUE(WIFEXITED(shown.status) && WEXITSTATUS(shown.status) == 2) << shown.describe();
  EXPECT_TRUE(shown.raw.starts_with("error: ")) << shown.raw;
}

TEST(TerminalView, LongToolsShowWhereTheyAre) {
  const std::filesystem::path folder = new_folder();
  std::string text;
  for (int i = 0; i < 60'000; ++i) text += "w" + std::to_string(i * 7919 % 100'003) + " of it\n";
  write_file(folder / "text.txt", text);
  const Shown shown =
      on_terminal(60, {"train_tokenizer", "--input", (folder / "text.txt").string(), "--vocab-size",
                       "3000", "--output", (folder / "tokenizer").string()});
  ASSERT_TRUE(WIFEXITED(shown.status) && WEXITSTATUS(shown.status) == 0) << shown.describe();
  EXPECT_NE(shown.raw.find("learnt "), std::string::npos) << shown.raw;
  EXPECT_EQ(shown.screen.rows_with("learnt "), 0U) << shown.describe();
  EXPECT_EQ(shown.screen.lines().back(), "") << shown.describe();
}

}  // namespace pentatron::functional
