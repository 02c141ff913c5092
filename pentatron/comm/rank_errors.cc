// SPDX-License-Identifier: Apache-2.0
#include "pentatron/comm/rank_errors.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>

#include "pentatron/base/env.h"
#include "pentatron/base/error.h"
#include "pentatron/base/error_line.h"
#include "pentatron/base/log.h"
#include "pentatron/comm/job_environment.h"

namespace pentatron::comm {
namespace {

// A datagram may be as long as a socket's buffer, some 200 kB; longer texts are cut.
constexpr std::size_t kMaxTextBytes = 64 << 10;
constexpr timeval kLongestSend{1, 0};
// Of scripts that run one failing command after another; the oldest are told long ago.
constexpr std::size_t kMaxGroups = 256;

struct Address {
  sockaddr_un socket{};
  socklen_t size = 0;
};

// An abstract name: no file that could be left behind.
Address address_of(std::string_view name) {
  Address address;
  address.socket.sun_family = AF_UNIX;
  const std::size_t length = std::min(name.size(), sizeof(address.socket.sun_path) - 1);
  std::memcpy(&address.socket.sun_path[1], name.data(), length);
  address.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  return address;
}

std::string_view take_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

}  // namespace

std::string packed(const LastWord& word) {
  return fmt::format("{}\n{}\n{}\n{}", word.rank, word.is_error ? "error" : "report", word.label,
                     std::string_view(word.text).substr(0, kMaxTextBytes));
}

std::optional<LastWord> unpacked(std::string_view message) {
  LastWord word;
  const std::string_view rank = take_line(message);
  const auto [end, error] = std::from_chars(rank.data(), rank.data() + rank.size(), word.rank);
  if (error != std::errc() || end != rank.data() + rank.size() || word.rank < 0) return {};
  const std::string_view kind = take_line(message);
  if (kind != "error" && kind != "report") return {};
  word.is_error = kind == "error";
  word.label = take_line(message);
  word.text = message;
  return word;
}

bool tell_launcher(bool is_error, std::string_view label, std::string_view text) {
  const std::optional<std::string> name = env_string(RankErrors::kVariable);
  const std::optional<std::string> rank = env_string("RANK");
  if (!name || name->empty() || !rank) return false;
  LastWord word{.is_error = is_error, .label = std::string(label), .text = std::string(text)};
  const char* const end = rank->data() + rank->size();
  if (std::from_chars(rank->data(), end, word.rank).ptr != end) return false;
  const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  (void)::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &kLongestSend, sizeof(kLongestSend));
  const Address address = address_of(*name);
  const std::string message = packed(word);
  const ssize_t sent = ::sendto(fd, message.data(), message.size(), MSG_NOSIGNAL,
                                reinterpret_cast<const sockaddr*>(&address.socket), address.size);
  ::close(fd);
  return sent == static_cast<ssize_t>(message.size());
}

RankErrors::RankErrors(int world_size)
    : fd_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)),
      world_size_(world_size) {
  if (fd_ < 0) return;
  const std::string name = "pentatron-launch-" + random_token();
  const Address address = address_of(name);
  const auto* generic = reinterpret_cast<const sockaddr*>(&address.socket);
  if (::bind(fd_, generic, address.size) == 0) name_ = name;
}

RankErrors::~RankErrors() {
  if (fd_ >= 0) ::close(fd_);
}

void RankErrors::collect() {
  std::array<char, kMaxTextBytes + 4096> buffer{};
  while (!name_.empty()) {
    const ssize_t got = ::recv(fd_, buffer.data(), buffer.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return;
    std::optional<LastWord> word = unpacked({buffer.data(), static_cast<std::size_t>(got)});
    if (word) add(std::move(*word));
  }
}

void RankErrors::add(LastWord word) {
  const auto same = std::find_if(groups_.begin(), groups_.end(), [&](const Group& group) {
    const LastWord& first = group.words.front();
    return first.text == word.text && first.is_error == word.is_error && !group.has(word.rank);
  });
  if (same != groups_.end()) {
    same->words.push_back(std::move(word));
    return;
  }
  if (groups_.size() == kMaxGroups) groups_.erase(groups_.begin());
  groups_.emplace_back().words.push_back(std::move(word));
}

bool RankErrors::Group::has(int rank) const {
  return std::any_of(words.begin(), words.end(),
                     [&](const LastWord& word) { return word.rank == rank; });
}

bool RankErrors::has_waited(std::chrono::milliseconds limit) const {
  const auto now = std::chrono::steady_clock::now();
  return std::any_of(groups_.begin(), groups_.end(), [&](const Group& group) {
    return !group.printed && now - group.since > limit;
  });
}

bool RankErrors::has_word_of(int rank) const {
  return std::any_of(groups_.begin(), groups_.end(),
                     [&](const Group& group) { return group.has(rank); });
}

bool RankErrors::all_alike(std::size_t num_ranks) const {
  return groups_.size() == 1 && groups_.front().words.size() == num_ranks;
}

bool RankErrors::repeats_another(const Group& group) const {
  const std::string& text = group.words.front().text;
  return std::any_of(groups_.begin(), groups_.end(), [&](const Group& other) {
    const LastWord& word = other.words.front();
    const std::string failed = fmt::format("rank {} failed: ", word.rank);
    return &other != &group && text.find(failed) != std::string::npos &&
           text.find(word.text) != std::string::npos;
  });
}

std::string RankErrors::label_of(const Group& group) const {
  if (world_size_ == 1) return {};
  const LastWord& first = group.words.front();
  if (group.words.size() == 1 && !first.label.empty()) return first.label;
  std::vector<int> ranks;
  for (const LastWord& word : group.words) ranks.push_back(word.rank);
  return ranks_text(std::move(ranks));
}

void RankErrors::print() {
  for (Group& group : groups_) {
    if (group.printed) continue;
    group.printed = true;
    const LastWord& first = group.words.front();
    if (!first.is_error) {
      log::print_line(first.text);
    } else if (!repeats_another(group)) {
      print_error_line(label_of(group), first.text);
    }
  }
}

std::string ranks_text(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  std::vector<std::string> runs;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (end - i > 2) {
      runs.push_back(fmt::format("{} to {}", ranks[i], ranks[end - 1]));
    } else {
      for (std::size_t k = i; k < end; ++k) runs.push_back(std::to_string(ranks[k]));
    }
    i = end;
  }
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (i > 0) text += i + 1 == runs.size() ? " and " : ", ";
    text += runs[i];
  }
  return text;
}

}  // namespace pentatron::comm
