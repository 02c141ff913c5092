// SPDX-License-Identifier: Apache-2.0
#include "pentatron/comm/rendezvous_client.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <thread>

#include "pentatron/base/error.h"
#include "pentatron/base/printable.h"
#include "pentatron/comm/job_environment.h"

namespace pentatron::comm {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kSlice{100};  // between looks at the cancel flag
constexpr milliseconds kLongestPause{200};
constexpr milliseconds kAddressTime{5000};  // for one of several addresses

std::int64_t number_of(const std::string& text) {
  std::int64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

}  // namespace

RendezvousClient::RendezvousClient(RendezvousPlace place, Limit limit)
    : place_(std::move(place)), limit_(limit), addresses_(resolve_host(place_.host, place_.port)) {
  const Step step = connect(Clock::now() + limit_);
  PENTATRON_CHECK(step == Step::kDone, kComm,
                  "rank {} cannot reach the rendezvous of rank 0 at {} within {} ms: {} "
                  "(--master-addr, --master-port or MASTER_ADDR, MASTER_PORT)",
                  place_.rank, where(), limit_.count(), why_);
}

RendezvousClient::~RendezvousClient() { close(); }

std::string RendezvousClient::where() const {
  return fmt::format("{}:{}", place_.host, place_.port);
}

void RendezvousClient::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
  in_.clear();
}

RendezvousClient::Step RendezvousClient::wait_for(short events, Clock::time_point deadline) const {
  while (!cancelled_) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
    pollfd waiting{.fd = fd_, .events = events, .revents = 0};
    const milliseconds slice = std::clamp(left, milliseconds(0), kSlice);
    const int ready = ::poll(&waiting, 1, static_cast<int>(slice.count()));
    if (ready > 0) return Step::kDone;
    if (ready < 0 && errno != EINTR) return Step::kGone;
    if (left <= milliseconds(0)) return Step::kNoAnswer;
  }
  return Step::kNoAnswer;
}

RendezvousClient::Step RendezvousClient::send_all(std::string_view bytes,
                                                  Clock::time_point deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) bytes.remove_prefix(static_cast<std::size_t>(sent));
    if (sent >= 0 || errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) return Step::kGone;
    if (const Step step = wait_for(POLLOUT, deadline); step != Step::kDone) return step;
  }
  return Step::kDone;
}

RendezvousClient::Step RendezvousClient::receive_some(Clock::time_point deadline) {
  char buffer[1 << 14];
  while (true) {
    if (const Step step = wait_for(POLLIN, deadline); step != Step::kDone) return step;
    const ssize_t got = ::recv(fd_, buffer, sizeof(buffer), MSG_DONTWAIT);
    if (got > 0) {
      in_.append(buffer, static_cast<std::size_t>(got));
      return Step::kDone;
    }
    if (got == 0) {
      errno = ECONNRESET;
      return Step::kGone;
    }
    if (errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK) return Step::kGone;
  }
}

RendezvousClient::Step RendezvousClient::try_address(const SocketAddress& address,
                                                     Clock::time_point deadline) {
  close();
  refused_ = false;
  fd_ = ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const auto gone = [&](int error) {
    refused_ = error == ECONNREFUSED;
    why_ = std::strerror(error);
    close();
    return Step::kGone;
  };
  if (fd_ < 0) return gone(errno);
  const auto* generic = reinterpret_cast<const sockaddr*>(&address.storage);
  if (::connect(fd_, generic, address.length) != 0) {
    if (errno != EINPROGRESS && errno != EINTR) return gone(errno);
    const Step step = wait_for(POLLOUT, deadline);
    if (step == Step::kNoAnswer) {
      why_ = "no answer: the machine or the way there is down";
      close();
      return step;
    }
    int error = 0;
    socklen_t length = sizeof(error);
    ::getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) return gone(error);
  }
  return prove(deadline);
}

RendezvousClient::Step RendezvousClient::prove(Clock::time_point deadline) {
  const auto fail = [&](Step step) {
    why_ = step == Step::kNoAnswer
               ? "it takes connections but does not answer: rank 0 is stopped or overloaded"
               : std::strerror(errno);
    close();
    return step;
  };
  const std::size_t greeting = wire::kGreeting.size();
  while (in_.size() < greeting + wire::kNonceBytes) {
    if (const Step step = receive_some(deadline); step != Step::kDone) return fail(step);
    const std::size_t seen = std::min(in_.size(), greeting);
    if (in_.compare(0, seen, wire::kGreeting.substr(0, seen)) != 0) {
      const std::string text = printable(in_, 60);
      close();
      PENTATRON_THROW(kComm,
                      "rank {}: another service than a rendezvous of this version answers at {} "
                      "('{}'); choose another --master-port or MASTER_PORT",
                      place_.rank, where(), text);
    }
  }
  const std::string digest = keyed_digest(place_.token, in_.substr(greeting, wire::kNonceBytes));
  in_.erase(0, greeting + wire::kNonceBytes);
  if (const Step step = send_all(digest, deadline); step != Step::kDone) return fail(step);
  while (in_.empty()) {
    if (const Step step = receive_some(deadline); step != Step::kDone) return fail(step);
  }
  const bool welcome = in_.front() == wire::kWelcome;
  in_.erase(0, 1);
  if (!welcome) {
    close();
    PENTATRON_THROW(kComm,
                    "rank {}: the rendezvous at {} is another job's: it refuses this one's token. "
                    "Choose another --master-port or MASTER_PORT, or give all ranks of the job the "
                    "same {}",
                    place_.rank, where(), kJobTokenVariable);
  }
  was_connected_ = true;
  return Step::kDone;
}

RendezvousClient::Step RendezvousClient::connect(Clock::time_point deadline) {
  milliseconds pause{5};
  while (true) {
    Step step = Step::kGone;
    for (const SocketAddress& address : addresses_) {
      const auto limit =
          addresses_.size() > 1 ? std::min(deadline, Clock::now() + kAddressTime) : deadline;
      step = try_address(address, limit);
      if (step == Step::kDone) return step;
    }
    // Before rank 0 has come, nobody listens; after it, that means its end. A connection that is
    // taken and closed again may only have come while the server had too many.
    if (was_connected_ && step == Step::kGone && refused_) return step;
    if (cancelled_ || Clock::now() + pause >= deadline) return step;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, kLongestPause);
  }
}

RendezvousClient::Reply RendezvousClient::ask(const wire::Request& request, Limit limit) {
  const auto deadline = Clock::now() + limit;
  const std::unique_lock lock(mutex_, deadline);
  if (!lock.owns_lock())
    return {Outcome::kNoAnswer, "another call of this rank still waits for it"};
  const auto failed = [&](Step step) {
    close();
    return Reply{step == Step::kGone ? Outcome::kGone : Outcome::kNoAnswer, why_};
  };
  if (fd_ < 0) {
    try {
      if (const Step step = connect(deadline); step != Step::kDone) return failed(step);
    } catch (const Error& error) {
      return {Outcome::kGone, error.what()};
    }
  }
  Step step = send_all(wire::framed(wire::pack(request)), deadline);
  bool valid = true;
  std::optional<std::string> body;
  while (step == Step::kDone && valid && !(body = wire::take_frame(in_, valid))) {
    step = receive_some(deadline);
  }
  if (step != Step::kDone) {
    why_ = step == Step::kNoAnswer ? fmt::format("no answer within {} ms", limit.count())
                                   : std::strerror(errno);
    return failed(step);
  }
  if (!valid || body->empty()) {
    why_ = "an answer that is none";
    return failed(Step::kGone);
  }
  Reply reply{.outcome = Outcome::kFailed, .body = body->substr(1)};
  if (static_cast<wire::Status>(body->front()) == wire::Status::kOk) reply.outcome = Outcome::kOk;
  if (static_cast<wire::Status>(body->front()) == wire::Status::kAbsent) {
    reply.outcome = Outcome::kAbsent;
  }
  return reply;
}

RendezvousClient::Reply RendezvousClient::checked(const wire::Request& request) {
  Reply reply = ask(request, limit_);
  PENTATRON_CHECK(reply.outcome != Outcome::kGone, kComm,
                  "rank 0 ended: its rendezvous at {} is gone ({})", where(), reply.body);
  PENTATRON_CHECK(reply.outcome != Outcome::kNoAnswer, kComm,
                  "rank 0 does not answer: its rendezvous at {} is silent ({}); is it stopped?",
                  where(), reply.body);
  PENTATRON_CHECK(reply.outcome != Outcome::kFailed, kComm, "the rendezvous at {} refuses '{}': {}",
                  where(), printable(request.key, 100), printable(reply.body, 200));
  return reply;
}

void RendezvousClient::set(const std::string& key, const std::string& bytes) {
  static_cast<void>(checked({.op = wire::Op::kSet, .key = key, .value = bytes}));
}

std::optional<std::string> RendezvousClient::get(const std::string& key) {
  Reply reply = checked({.op = wire::Op::kGet, .key = key, .value = {}});
  if (reply.outcome == Outcome::kAbsent) return std::nullopt;
  return std::move(reply.body);
}

std::optional<std::string> RendezvousClient::await(const std::string& key, Limit wait) {
  Reply reply =
      checked({.op = wire::Op::kAwait, .key = key, .value = std::to_string(wait.count())});
  if (reply.outcome == Outcome::kAbsent) return std::nullopt;
  return std::move(reply.body);
}

std::int64_t RendezvousClient::add(const std::string& key, std::int64_t amount) {
  return number_of(
      checked({.op = wire::Op::kAdd, .key = key, .value = std::to_string(amount)}).body);
}

std::string RendezvousClient::set_absent(const std::string& key, const std::string& bytes) {
  return checked({.op = wire::Op::kSetAbsent, .key = key, .value = bytes}).body;
}

bool RendezvousClient::remove(const std::string& key) {
  return checked({.op = wire::Op::kDelete, .key = key, .value = {}}).outcome == Outcome::kOk;
}

std::int64_t RendezvousClient::count() {
  return number_of(checked({.op = wire::Op::kCount, .key = {}, .value = {}}).body);
}

}  // namespace pentatron::comm
