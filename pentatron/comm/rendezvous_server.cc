// SPDX-License-Identifier: Apache-2.0
#include "pentatron/comm/rendezvous_server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <iterator>
#include <sstream>

#include "pentatron/base/error.h"
#include "pentatron/base/log.h"
#include "pentatron/base/printable.h"
#include "pentatron/comm/job_environment.h"

namespace pentatron::comm {
namespace {

constexpr std::chrono::seconds kProofTime{10};
constexpr std::size_t kMaxStrangers = 256;   // connections without a proof at a time
constexpr std::chrono::seconds kHaste{1};    // how long one is left alone when there are too many
constexpr std::size_t kMaxPhaseBytes = 200;  // kept of what a rank says it does

std::optional<std::int64_t> parse_integer(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::string reply(wire::Status status, std::string_view body = {}) {
  return std::string(1, static_cast<char>(status)).append(body);
}

// In a time that does not tell how much of them is equal.
bool equal_secrets(std::string_view a, std::string_view b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    difference |= static_cast<unsigned>(a[i] ^ b[i]);
  }
  return difference == 0;
}

}  // namespace

std::string describe(const std::vector<RendezvousServer::Silence>& silences) {
  std::string text;
  for (const RendezvousServer::Silence& silence : silences) {
    text += fmt::format("{}rank {} has not been heard of for {:.0f} s, last in '{}'",
                        text.empty() ? "" : "; ", silence.rank, silence.seconds, silence.phase);
  }
  return text;
}

RendezvousServer::RendezvousServer(int listening_fd, std::string token)
    : listening_fd_(listening_fd), token_(std::move(token)) {
  const bool made = ::pipe2(wake_fds_, O_CLOEXEC | O_NONBLOCK) == 0 &&
                    ::fcntl(listening_fd_, F_SETFL, O_NONBLOCK) == 0;
  if (!made) {
    const int error = errno;
    for (const int fd : {listening_fd_, wake_fds_[0], wake_fds_[1]}) {
      if (fd >= 0) ::close(fd);
    }
    PENTATRON_THROW(kComm, "the rendezvous cannot be served: {}", std::strerror(error));
  }
  thread_ = std::thread([this] { serve(); });
}

RendezvousServer::~RendezvousServer() {
  [[maybe_unused]] const auto written = ::write(wake_fds_[1], "x", 1);
  thread_.join();
  for (const Connection& connection : connections_) ::close(connection.fd);
  for (const int fd : {listening_fd_, wake_fds_[0], wake_fds_[1]}) ::close(fd);
}

std::vector<RendezvousServer::Silence> RendezvousServer::silent_ranks(
    std::chrono::milliseconds longer_than) const {
  const std::lock_guard lock(mutex_);
  std::vector<Silence> silences;
  const auto now = Clock::now();
  for (const auto& [rank, beat] : beats_) {
    if (now - beat.when < longer_than) continue;
    silences.push_back({.rank = rank,
                        .seconds = std::chrono::duration<double>(now - beat.when).count(),
                        .phase = beat.phase});
  }
  return silences;
}

std::string RendezvousServer::first_gone() const {
  const std::lock_guard lock(mutex_);
  const std::pair<const std::int64_t, Beat>* first = nullptr;
  for (const auto& entry : beats_) {
    if (entry.second.gone == Clock::time_point{}) continue;
    if (first == nullptr || entry.second.gone < first->second.gone) first = &entry;
  }
  if (first == nullptr) return {};
  return fmt::format("rank {} is gone, last in '{}'", first->first, first->second.phase);
}

// A rank that ends in good order leaves first.
void RendezvousServer::lost(std::int64_t rank) {
  const std::lock_guard lock(mutex_);
  const auto beat = beats_.find(rank);
  if (beat != beats_.end()) beat->second.gone = Clock::now();
}

std::string RendezvousServer::behind(const std::string& group, std::int64_t calls,
                                     const std::vector<std::int64_t>& ranks) const {
  const std::lock_guard lock(mutex_);
  std::string text;
  for (const std::int64_t rank : ranks) {
    const auto beat = beats_.find(rank);
    std::int64_t made = 0;
    if (beat != beats_.end()) {
      const auto found = beat->second.calls.find(group);
      if (found != beat->second.calls.end()) made = found->second;
    }
    if (made >= calls) continue;
    text += fmt::format("{}rank {} ({} calls, {})", text.empty() ? "" : ", ", rank, made,
                        beat == beats_.end() ? std::string("ended")
                                             : fmt::format("last in '{}'", beat->second.phase));
  }
  return text;
}

void RendezvousServer::serve() {
  std::vector<pollfd> waiting;
  while (true) {
    const int pause = answer_awaiting();
    waiting = {{.fd = wake_fds_[0], .events = POLLIN, .revents = 0},
               {.fd = listening_fd_, .events = POLLIN, .revents = 0}};
    for (const Connection& connection : connections_) {
      const int events = connection.out.empty() ? POLLIN : POLLIN | POLLOUT;
      waiting.push_back({.fd = connection.fd, .events = static_cast<short>(events), .revents = 0});
    }
    if (::poll(waiting.data(), waiting.size(), pause) < 0 && errno != EINTR) {
      log::error("the rendezvous cannot be served any more: {}", std::strerror(errno));
      return;
    }
    if (waiting[0].revents != 0) return;
    for (std::size_t i = 0; i < connections_.size(); ++i) {
      Connection& connection = connections_[i];
      const auto events = static_cast<unsigned>(waiting[i + 2].revents);
      if ((events & (POLLIN | POLLHUP | POLLERR)) != 0) read_from(connection);
      if (connection.fd >= 0 && !connection.out.empty()) write_to(connection);
    }
    if (waiting[1].revents != 0) accept_all();
    drop_closed();
  }
}

void RendezvousServer::accept_all() {
  while (true) {
    const int fd = ::accept4(listening_fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      // Without descriptors the socket stays ready: give them time to come back.
      if (errno == EMFILE || errno == ENFILE) ::usleep(100'000);
      return;
    }
    if (!make_room()) {
      ::close(fd);
      continue;
    }
    connections_.push_back({.fd = fd, .nonce = random_token(), .since = Clock::now()});
    connections_.back().out = std::string(wire::kGreeting) + connections_.back().nonce;
    write_to(connections_.back());
  }
}

// Many that prove nothing must not keep the job's own out: the oldest one goes, for a proof takes
// milliseconds.
bool RendezvousServer::make_room() {
  const auto is_stranger = [](const Connection& c) { return !c.trusted && c.fd >= 0; };
  const auto strangers = std::ranges::count_if(connections_, is_stranger);
  if (static_cast<std::size_t>(strangers) < kMaxStrangers) return true;
  const auto oldest = std::ranges::find_if(connections_, is_stranger);  // in order of their coming
  if (Clock::now() - oldest->since < kHaste) return false;
  ::close(oldest->fd);
  oldest->fd = -1;
  return true;
}

void RendezvousServer::read_from(Connection& connection) {
  char buffer[1 << 16];
  while (true) {
    const ssize_t got = ::recv(connection.fd, buffer, sizeof(buffer), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (got <= 0) {
      ::close(connection.fd);
      connection.fd = -1;
      return;
    }
    connection.in.append(buffer, static_cast<std::size_t>(got));
    if (!connection.trusted && connection.in.size() > wire::kDigestBytes) break;
    if (connection.in.size() > sizeof(buffer)) break;  // the others' turn
  }
  if (connection.closing) {
    connection.in.clear();
    return;
  }
  if (!connection.trusted) prove(connection);
  if (connection.trusted) answer_all(connection);
}

void RendezvousServer::prove(Connection& connection) {
  if (connection.in.size() < wire::kDigestBytes) return;
  const std::string proof = connection.in.substr(0, wire::kDigestBytes);
  connection.in.erase(0, wire::kDigestBytes);
  connection.trusted = equal_secrets(proof, keyed_digest(token_, connection.nonce));
  connection.out += connection.trusted ? wire::kWelcome : wire::kRefusal;
  connection.closing = !connection.trusted;
}

void RendezvousServer::answer_all(Connection& connection) {
  bool valid = true;
  while (!connection.awaiting) {
    const auto body = wire::take_frame(connection.in, valid);
    if (!body) break;
    const auto request = wire::unpack(*body);
    valid = request.has_value();
    if (!valid) break;
    if (request->op == wire::Op::kBeat) {
      connection.beats_of = parse_integer(request->key).value_or(-1);
    }
    if (request->op == wire::Op::kAwait) {
      await(connection, *request);
    } else {
      connection.out += wire::framed(answer(*request));
    }
  }
  if (!valid) connection.closing = true;
}

void RendezvousServer::await(Connection& connection, const wire::Request& request) {
  constexpr std::int64_t kLongest = 60'000;
  const auto limit =
      std::clamp<std::int64_t>(parse_integer(request.value).value_or(0), 0, kLongest);
  connection.awaiting = true;
  connection.awaited = request.key;
  connection.awaits_until = Clock::now() + std::chrono::milliseconds(limit);
}

int RendezvousServer::answer_awaiting() {
  constexpr std::int64_t kIdle = 1000;
  std::int64_t next = kIdle;
  for (Connection& connection : connections_) {
    if (!connection.awaiting) continue;
    const auto found = values_.find(connection.awaited);
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(connection.awaits_until - Clock::now());
    if (found == values_.end() && left.count() > 0) {
      next = std::min<std::int64_t>(next, left.count());
      continue;
    }
    connection.awaiting = false;
    connection.out +=
        wire::framed(found == values_.end() ? reply(wire::Status::kAbsent)
                                            : reply(wire::Status::kOk, found->second));
    write_to(connection);
    if (connection.fd >= 0) answer_all(connection);  // what has come meanwhile
  }
  return static_cast<int>(next);
}

void RendezvousServer::write_to(Connection& connection) {
  while (!connection.out.empty()) {
    const ssize_t sent =
        ::send(connection.fd, connection.out.data(), connection.out.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (sent < 0) {
      ::close(connection.fd);
      connection.fd = -1;
      return;
    }
    connection.out.erase(0, static_cast<std::size_t>(sent));
  }
}

void RendezvousServer::drop_closed() {
  const auto now = Clock::now();
  std::erase_if(connections_, [&](Connection& connection) {
    const bool late = !connection.trusted && now - connection.since > kProofTime;
    const bool done = connection.closing && connection.out.empty();
    if (connection.fd >= 0 && !late && !done) return false;
    if (connection.fd >= 0) ::close(connection.fd);
    if (connection.beats_of >= 0) lost(connection.beats_of);
    return true;
  });
  live_peers_ = std::ranges::count_if(
      connections_, [](const Connection& connection) { return connection.beats_of > 0; });
}

std::string RendezvousServer::answer(const wire::Request& request) {
  using wire::Op;
  using wire::Status;
  switch (request.op) {
    case Op::kSet:
      values_[request.key] = request.value;
      return reply(Status::kOk);
    case Op::kGet: {
      const auto found = values_.find(request.key);
      return found == values_.end() ? reply(Status::kAbsent) : reply(Status::kOk, found->second);
    }
    case Op::kAdd: {
      const auto amount = parse_integer(request.value);
      std::string& value = values_.try_emplace(request.key, "0").first->second;
      const auto before = parse_integer(value);
      if (!amount || !before) return reply(Status::kFailed, "no number");
      value = std::to_string(*before + *amount);
      return reply(Status::kOk, value);
    }
    case Op::kSetAbsent:
      return reply(Status::kOk, values_.try_emplace(request.key, request.value).first->second);
    case Op::kDelete:
      return reply(values_.erase(request.key) > 0 ? Status::kOk : Status::kAbsent);
    case Op::kCount:
      return reply(Status::kOk, std::to_string(values_.size()));
    case Op::kBeat:
      return answer_beat(request);
    case Op::kLeave: {
      const std::lock_guard lock(mutex_);
      beats_.erase(parse_integer(request.key).value_or(-1));
      return reply(Status::kOk);
    }
    case Op::kAwait:  // has an answer of its own
      break;
    case Op::kSilent: {
      const auto limit = parse_integer(request.value).value_or(0);
      const std::string gone = first_gone();
      const std::string silent = describe(silent_ranks(std::chrono::milliseconds(limit)));
      return reply(Status::kOk, gone.empty() || silent.empty()
                                    ? gone + silent
                                    : fmt::format("{}; {}", gone, silent));
    }
    case Op::kBehind: {
      std::istringstream words(request.value);
      std::int64_t calls = 0;
      words >> calls;
      const std::vector<std::int64_t> ranks{std::istream_iterator<std::int64_t>(words), {}};
      return reply(Status::kOk, behind(request.key, calls, ranks));
    }
  }
  return reply(Status::kFailed, "unknown request");
}

std::string RendezvousServer::answer_beat(const wire::Request& request) {
  const std::lock_guard lock(mutex_);
  if (const auto rank = parse_integer(request.key)) {
    Beat& beat = beats_[*rank];
    const std::size_t phase_end = request.value.find(wire::kProgressMark);
    beat.when = Clock::now();
    beat.gone = {};
    beat.phase = printable(request.value.substr(0, phase_end), kMaxPhaseBytes);
    for (std::size_t at = phase_end; at < request.value.size();) {
      const std::size_t end =
          std::min(request.value.find(wire::kProgressMark, at + 1), request.value.size());
      const std::string entry = request.value.substr(at + 1, end - at - 1);
      const std::size_t space = entry.find(' ');
      const auto calls = parse_integer(entry.substr(0, space));
      if (calls && space != std::string::npos) beat.calls[entry.substr(space + 1)] = *calls;
      at = end;
    }
  }
  const auto failure = values_.find(kFailureKey);
  if (failure != values_.end()) return reply(wire::Status::kFailed, failure->second);
  const auto first = beats_.find(0);
  return reply(wire::Status::kOk, first == beats_.end() ? "" : first->second.phase);
}

}  // namespace pentatron::comm
