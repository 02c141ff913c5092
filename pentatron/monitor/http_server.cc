// SPDX-License-Identifier: Apache-2.0
#include "pentatron/monitor/http_server.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <list>
#include <utility>

#include "pentatron/base/error.h"

namespace pentatron::monitor {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::string_view words_of(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 411:
      return "Length Required";
    case 413:
      return "Content Too Large";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Unknown";
  }
}

constexpr std::string_view kFixedHeaders =
    "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'\r\n"
    "X-Content-Type-Options: nosniff\r\n"
    "Referrer-Policy: no-referrer\r\n"
    "Cache-Control: no-store\r\n";

std::string head_of(const HttpAnswer& answer, bool keep_alive) {
  std::string head = fmt::format("HTTP/1.1 {} {}\r\n{}Content-Type: {}\r\nConnection: {}\r\n",
                                 answer.status, words_of(answer.status), kFixedHeaders, answer.type,
                                 keep_alive ? "keep-alive" : "close");
  if (!answer.next_piece) head += fmt::format("Content-Length: {}\r\n", answer.body.size());
  if (answer.status == 405) head += "Allow: GET, HEAD\r\n";
  if (!answer.file_name.empty()) {
    head += fmt::format("Content-Disposition: attachment; filename=\"{}\"\r\n", answer.file_name);
  }
  return head + "\r\n";
}

// A socket, closed at the end.
class Socket final {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_;
};

// Listens on the first of the host's addresses that takes it.
Socket listen_on(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  (void)::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> all(found, [](addrinfo* list) {
    if (list != nullptr) ::freeaddrinfo(list);
  });
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    Socket socket(::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (socket.get() < 0) continue;
    // Not SO_REUSEPORT: two servers would share a port.
    const int yes = 1;
    (void)::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    constexpr int kBacklog = 128;
    if (::bind(socket.get(), at->ai_addr, at->ai_addrlen) == 0 &&
        ::listen(socket.get(), kBacklog) == 0) {
      return socket;
    }
  }
  PENTATRON_CHECK(
      false, kIo,
      "cannot listen on {} port {}: is the port taken or the address another machine's?", host,
      port);
  return Socket();
}

int port_of(const Socket& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  (void)::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size);
  return address.ss_family == AF_INET6
             ? ntohs(reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port)
             : ntohs(reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

struct Connection {
  explicit Connection(Socket accepted) : socket(std::move(accepted)) {}
  Socket socket;
  std::string in = {};
  std::string out = {};
  std::size_t sent = 0;  // of `out`
  std::function<std::string()> next_piece = {};
  bool answering = false;
  bool close_after = false;
  bool given_up = false;
  bool closing = false;     // all is sent and our side is shut: what still comes is dropped
  std::size_t dropped = 0;  // bytes of that
  Clock::time_point since = Clock::now();  // of the state that it is in, or the last byte taken
};

}  // namespace

class HttpServer::Loop {
 public:
  Loop(const std::string& host, int port, Handler handler, HttpLimits limits)
      : handler_(std::move(handler)),
        limits_(limits),
        listening_(listen_on(host, port)),
        wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        port_(port_of(listening_)) {}

  [[nodiscard]] int port() const { return port_; }

  void stop() {
    const std::uint64_t one = 1;
    (void)!::write(wake_.get(), &one, sizeof(one));
  }

  void run() {
    while (true) {
      std::vector<pollfd> fds{{wake_.get(), POLLIN, 0}, {listening_.get(), POLLIN, 0}};
      for (const Connection& c : connections_) {
        fds.push_back({c.socket.get(), static_cast<short>(c.answering ? POLLOUT : POLLIN), 0});
      }
      constexpr int kLongestWaitMs = 500;  // deadlines are looked at that often
      (void)::poll(fds.data(), fds.size(), kLongestWaitMs);
      if (fds[0].revents != 0) break;
      std::size_t i = 2;
      for (auto it = connections_.begin(); it != connections_.end(); ++i) {
        const bool ready = fds[i].revents != 0;
        const bool stays = (!ready || (it->answering ? write(*it) : read(*it))) && !expired(*it);
        it = stays ? std::next(it) : connections_.erase(it);
      }
      if (fds[1].revents != 0) accept_all();
    }
    connections_.clear();
  }

 private:
  void accept_all() {
    constexpr int kMostAtOnce = 64;
    for (int i = 0; i < kMostAtOnce; ++i) {
      Socket socket(::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (socket.get() < 0) {
        // Out of descriptors: without room the listening socket would stay ready for ever.
        if ((errno == EMFILE || errno == ENFILE) && !connections_.empty()) make_room();
        return;
      }
      if (connections_.size() >= limits_.max_connections) make_room();
      const int yes = 1;
      (void)::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
      connections_.emplace_back(std::move(socket));
    }
  }

  // Those that wait for a request go first, the oldest of them at that.
  void make_room() {
    const auto oldest = std::min_element(
        connections_.begin(), connections_.end(), [](const Connection& a, const Connection& b) {
          return std::pair(a.answering, a.since) < std::pair(b.answering, b.since);
        });
    connections_.erase(oldest);
  }

  [[nodiscard]] bool expired(const Connection& c) const {
    const double limit = c.closing      ? 1
                         : c.answering  ? limits_.write_seconds
                         : c.in.empty() ? limits_.idle_seconds
                                        : limits_.head_seconds;
    return c.given_up || seconds_since(c.since) > limit;
  }

  // False: the connection ends.
  bool read(Connection& c) {
    std::array<char, kLongestHead> block{};
    const ssize_t got = ::recv(c.socket.get(), block.data(), block.size(), 0);
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    if (got == 0) return false;
    constexpr std::size_t kMostDropped = 1 << 18;
    if (c.closing) return (c.dropped += static_cast<std::size_t>(got)) < kMostDropped;
    if (c.in.empty()) c.since = Clock::now();
    c.in.append(block.data(), static_cast<std::size_t>(got));
    return answer_next(c);
  }

  bool answer_next(Connection& c) {
    const ParsedRequest parsed = parse_request(c.in);
    if (parsed.status == 0) return true;
    HttpAnswer answer;
    if (parsed.status == 200) {
      c.in.erase(0, parsed.size);
      try {
        answer = handler_(parsed.request);
      } catch (const std::exception& error) {
        answer = {.status = 500, .body = std::string(error.what()) + "\n"};
      }
    } else {
      c.in.clear();
      answer = {.status = parsed.status, .body = fmt::format("{}\n", words_of(parsed.status))};
    }
    c.close_after = parsed.status != 200 || !parsed.request.keep_alive || answer.next_piece;
    c.out = head_of(answer, !c.close_after);
    c.sent = 0;
    if (!parsed.request.head_only) {
      c.out += answer.body;
      c.next_piece = std::move(answer.next_piece);
    }
    c.answering = true;
    c.since = Clock::now();
    give_up_pending(c);
    return write(c);
  }

  // For the answer that `c` has now.
  void give_up_pending(const Connection& c) {
    std::size_t pending = 0;
    for (const Connection& one : connections_) pending += one.out.size();
    while (pending > limits_.max_pending_bytes) {
      Connection* oldest = nullptr;
      for (Connection& one : connections_) {
        if (&one == &c || one.out.empty()) continue;
        if (oldest == nullptr || one.since < oldest->since) oldest = &one;
      }
      if (oldest == nullptr) return;
      pending -= oldest->out.size();
      oldest->out = std::string();
      oldest->sent = 0;
      oldest->next_piece = nullptr;
      oldest->given_up = true;
    }
  }

  bool write(Connection& c) {
    if (c.given_up) return false;
    constexpr std::size_t kPiecesAtOnce = 4;  // then others have their turn
    for (std::size_t pieces = 0;;) {
      while (c.sent < c.out.size()) {
        const ssize_t done =
            ::send(c.socket.get(), c.out.data() + c.sent, c.out.size() - c.sent, MSG_NOSIGNAL);
        if (done < 0) return errno == EAGAIN || errno == EINTR;
        c.sent += static_cast<std::size_t>(done);
        c.since = Clock::now();
      }
      c.out.clear();
      c.sent = 0;
      if (!c.next_piece) break;
      if (pieces++ == kPiecesAtOnce) return true;
      c.out = c.next_piece();
      if (c.out.empty()) c.next_piece = nullptr;
    }
    c.answering = false;
    c.since = Clock::now();
    if (c.close_after) {
      // Closed at once, bytes that the client still sends would be answered with a reset, which
      // can take the answer with it.
      c.closing = true;
      return ::shutdown(c.socket.get(), SHUT_WR) == 0;
    }
    return c.in.empty() || answer_next(c);
  }

  Handler handler_;
  HttpLimits limits_;
  Socket listening_;
  Socket wake_;
  int port_;
  std::list<Connection> connections_;
};

HttpServer::HttpServer(const std::string& host, int port, Handler handler, HttpLimits limits)
    : loop_(std::make_unique<Loop>(host, port, std::move(handler), limits)) {}
HttpServer::~HttpServer() = default;
int HttpServer::port() const { return loop_->port(); }
void HttpServer::run() { loop_->run(); }
void HttpServer::stop() { loop_->stop(); }

}  // namespace pentatron::monitor
