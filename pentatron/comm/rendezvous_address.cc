// SPDX-License-Identifier: Apache-2.0
#include "pentatron/comm/rendezvous_address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "pentatron/base/error.h"
#include "pentatron/base/format.h"
#include "pentatron/base/log.h"

namespace pentatron::comm {
namespace {

std::string without_brackets(const std::string& host) {
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  return bracketed ? host.substr(1, host.size() - 2) : host;
}

const sockaddr* generic(const SocketAddress& address) {
  return reinterpret_cast<const sockaddr*>(&address.storage);
}

// -1 with errno set.
int try_listen(const SocketAddress& address) {
  const int fd = ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  const int on = 1;
  const int off = 0;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (address.storage.ss_family == AF_INET6) {
    ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  }
  if (::bind(fd, generic(address), address.length) == 0 && ::listen(fd, SOMAXCONN) == 0) return fd;
  const int error = errno;
  ::close(fd);
  errno = error;
  return -1;
}

[[noreturn]] void refuse_port(std::int64_t port, std::int64_t rank, int error) {
  PENTATRON_THROW(kComm,
                  "rank {} cannot serve the rendezvous on port {}: {}; choose another port with "
                  "--master-port or MASTER_PORT",
                  rank, port, std::strerror(error));
}

// Both families where the machine has IPv6.
int listen_everywhere(std::int64_t port, std::int64_t rank) {
  int error = 0;
  for (const int family : {AF_INET6, AF_INET}) {
    SocketAddress address;
    address.storage.ss_family = static_cast<sa_family_t>(family);
    // The port stands at the same place in both families' addresses.
    reinterpret_cast<sockaddr_in*>(&address.storage)->sin_port =
        htons(static_cast<std::uint16_t>(port));
    address.length = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    const int fd = try_listen(address);
    if (fd >= 0) return fd;
    error = errno;
    if (error == EADDRINUSE) break;
  }
  refuse_port(port, rank, error);
}

}  // namespace

std::vector<SocketAddress> resolve_host(const std::string& host, std::int64_t port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int rc =
      ::getaddrinfo(without_brackets(host).c_str(), std::to_string(port).c_str(), &hints, &found);
  PENTATRON_CHECK(rc == 0, kComm,
                  "cannot resolve the rendezvous host {}: {}; give rank 0's machine by name or "
                  "address (--master-addr or MASTER_ADDR)",
                  quoted_for_message(host), ::gai_strerror(rc));
  std::vector<SocketAddress> addresses;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    SocketAddress& address = addresses.emplace_back();
    std::memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
    address.length = entry->ai_addrlen;
  }
  ::freeaddrinfo(found);
  return addresses;
}

bool is_loopback(const SocketAddress& address) {
  if (address.storage.ss_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&address.storage);
    return (ntohl(v4->sin_addr.s_addr) >> 24) == IN_LOOPBACKNET;
  }
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&address.storage);
  return address.storage.ss_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

std::string to_string(const SocketAddress& address) {
  char text[NI_MAXHOST] = {};
  const int rc = ::getnameinfo(generic(address), address.length, text, sizeof(text), nullptr, 0,
                               NI_NUMERICHOST);
  return rc == 0 ? text : "?";
}

int listen_at(const std::string& host, std::int64_t port, std::int64_t rank) {
  int error = EADDRNOTAVAIL;
  const std::string plain = without_brackets(host);
  for (const SocketAddress& address : resolve_host(host, port)) {
    if (is_loopback(address) && plain != "localhost" && to_string(address) != plain) continue;
    const int fd = try_listen(address);
    if (fd >= 0) return fd;
    error = errno;
    if (error == EADDRINUSE || error == EACCES) refuse_port(port, rank, error);
  }
  log::warn(
      "the rendezvous host {} names no address of this machine that others could reach ({}): rank "
      "{} listens on all of its addresses; name one with --master-addr or MASTER_ADDR",
      quoted_for_message(host), std::strerror(error), rank);
  return listen_everywhere(port, rank);
}

std::int64_t port_of(int fd) {
  SocketAddress address;
  address.length = sizeof(address.storage);
  PENTATRON_CHECK(
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.length) == 0, kComm,
      "the port of the rendezvous: {}", std::strerror(errno));
  return ntohs(reinterpret_cast<const sockaddr_in*>(&address.storage)->sin_port);
}

std::string local_address_towards(const std::string& host, std::int64_t port) {
  for (const SocketAddress& address : resolve_host(host, port)) {
    const int fd = ::socket(address.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    SocketAddress own;
    own.length = sizeof(own.storage);
    const bool routed =
        ::connect(fd, generic(address), address.length) == 0 &&
        ::getsockname(fd, reinterpret_cast<sockaddr*>(&own.storage), &own.length) == 0;
    ::close(fd);
    if (routed) return to_string(own);
  }
  PENTATRON_THROW(kComm, "no route to the rendezvous host {} (--master-addr or MASTER_ADDR)",
                  quoted_for_message(host));
}

}  // namespace pentatron::comm
