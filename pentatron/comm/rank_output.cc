// SPDX-License-Identifier: Apache-2.0
#include "pentatron/comm/rank_output.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/base/printable.h"

namespace pentatron::comm {
namespace {

constexpr std::size_t kKeptLines = 10;
constexpr std::size_t kMaxLineBytes = 500;
constexpr std::chrono::milliseconds kUnderWay{300};

void close_once(int& fd) {
  if (fd >= 0) ::close(fd);
  fd = -1;
}

void pass_on(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // nobody reads it any more
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace

RankOutput::RankOutput() {
  taken_over_ = ::isatty(STDERR_FILENO) != 1 && ::pipe2(wake_.data(), O_CLOEXEC) == 0;
}

RankOutput::~RankOutput() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  if (thread_.joinable()) {
    [[maybe_unused]] const auto written = ::write(wake_[1], "x", 1);
    thread_.join();
  }
  for (auto& [rank, source] : sources_) {
    close_once(source.read_fd);
    close_once(source.write_fd);
  }
  close_once(wake_[0]);
  close_once(wake_[1]);
}

int RankOutput::descriptor_for(int rank) {
  if (!taken_over_) return -1;
  int ends[2];
  PENTATRON_CHECK(::pipe2(ends, O_CLOEXEC) == 0, kIo, "launch: pipe: {}", std::strerror(errno));
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  const std::lock_guard lock(mutex_);
  sources_[rank] = {.read_fd = ends[0], .write_fd = ends[1]};
  return ends[1];
}

void RankOutput::started(int rank) {
  if (!taken_over_) return;
  {
    const std::lock_guard lock(mutex_);
    close_once(sources_[rank].write_fd);
  }
  if (!thread_.joinable()) {
    thread_ = std::thread([this] { run(); });
  } else {
    [[maybe_unused]] const auto written = ::write(wake_[1], "x", 1);
  }
}

void RankOutput::keep(Source& source, std::string_view text) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    if (!source.open_line) source.lines.emplace_back();
    std::string& line = source.lines.back();
    if (line.size() < kMaxLineBytes) {
      line += text.substr(0, std::min(end, kMaxLineBytes - line.size()));
    }
    source.open_line = end == std::string_view::npos;
    if (source.lines.size() > kKeptLines) source.lines.pop_front();
    if (source.open_line) return;
    text.remove_prefix(end + 1);
  }
}

// With the mutex held. What is read is passed on before more is read, so that a rank waits for a
// slow reader as it would without us.
void RankOutput::take(Source& source) {
  char buffer[65536];
  while (source.read_fd >= 0) {
    const ssize_t got = ::read(source.read_fd, buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {
      close_once(source.read_fd);
      ended_.notify_all();
      return;
    }
    const std::string_view text(buffer, static_cast<std::size_t>(got));
    keep(source, text);
    pass_on(text);
  }
}

void RankOutput::run() {
  std::vector<pollfd> waiting;
  for (bool more = true; more;) {
    {
      const std::lock_guard lock(mutex_);
      for (auto& [rank, source] : sources_) take(source);
      more = !stop_;
      waiting = {{.fd = wake_[0], .events = POLLIN, .revents = 0}};
      for (const auto& [rank, source] : sources_) {
        if (source.read_fd >= 0) {
          waiting.push_back({.fd = source.read_fd, .events = POLLIN, .revents = 0});
        }
      }
    }
    if (!more) return;
    ::poll(waiting.data(), waiting.size(), -1);
    char nothing[16];
    if ((waiting[0].revents & POLLIN) != 0) {
      [[maybe_unused]] const auto got = ::read(wake_[0], nothing, sizeof(nothing));
    }
  }
}

std::string RankOutput::last_lines(int rank) {
  std::unique_lock lock(mutex_);
  const auto found = sources_.find(rank);
  if (found == sources_.end()) return {};
  // What it has started may hold the other end for longer.
  ended_.wait_for(lock, kUnderWay, [&] { return found->second.read_fd < 0; });
  std::string text;
  for (const std::string& line : found->second.lines) {
    text += "\n  | " + printable(line, kMaxLineBytes);
  }
  return text;
}

}  // namespace pentatron::comm
