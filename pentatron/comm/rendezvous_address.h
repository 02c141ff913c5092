// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace pentatron::comm {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
};

// Addresses of "node7", "10.0.0.7", "::1" or "[::1]", the system's preferred one first. kComm at
// once where there is none.
[[nodiscard]] std::vector<SocketAddress> resolve_host(const std::string& host, std::int64_t port);

[[nodiscard]] bool is_loopback(const SocketAddress& address);
[[nodiscard]] std::string to_string(const SocketAddress& address);  // "10.0.0.7"

// A listening socket of `rank` on the host's address alone; on all addresses, with a warning, where
// that is none of this machine's (a relay's), or where a name that is not "localhost" stands for
// loopback (Debian's /etc/hosts gives the machine's own name such an address), which other machines
// could not reach. A port that is taken: kComm naming the options.
[[nodiscard]] int listen_at(const std::string& host, std::int64_t port, std::int64_t rank);

// The port of a listening socket.
[[nodiscard]] std::int64_t port_of(int fd);

// The address of this machine that the route to `host` leaves from: the one that peers can reach as
// well. No packet is sent. kComm without a route.
[[nodiscard]] std::string local_address_towards(const std::string& host, std::int64_t port);

}  // namespace pentatron::comm
