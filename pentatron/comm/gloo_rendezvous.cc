// SPDX-License-Identifier: Apache-2.0
#include "pentatron/comm/gloo_rendezvous.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <cerrno>
#include <cstring>

#include "pentatron/base/error.h"

namespace pentatron::comm {
namespace {

// A listening socket on all addresses, both families where the machine has IPv6. Opened here, so
// that a taken port is our message.
int listen_on(const GlooOptions& options) {
  int error = 0;
  for (const int family : {AF_INET6, AF_INET}) {
    const int fd = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    const int on = 1;
    const int off = 0;
    ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (family == AF_INET6) ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    sockaddr_storage address{};
    address.ss_family = static_cast<sa_family_t>(family);
    // The port stands at the same place in both families' addresses.
    reinterpret_cast<sockaddr_in*>(&address)->sin_port =
        htons(static_cast<std::uint16_t>(options.master_port));
    const socklen_t length = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    if (::bind(fd, reinterpret_cast<sockaddr*>(&address), length) == 0 &&
        ::listen(fd, SOMAXCONN) == 0) {
      return fd;
    }
    error = errno;
    ::close(fd);
    if (error == EADDRINUSE) break;
  }
  PENTATRON_THROW(kComm,
                  "rank {} cannot serve the rendezvous on port {}: {}; choose another port with "
                  "--master-port or MASTER_PORT",
                  options.rank, options.master_port, std::strerror(error));
}

class RendezvousStore final : public Store {
 public:
  RendezvousStore(const GlooOptions& options, const std::string& prefix)
      : store_(c10::make_intrusive<c10d::PrefixStore>(prefix, connect_store(options, false))),
        place_(fmt::format("{}:{}", options.master_addr, options.master_port)) {}

  void set(const std::string& key, const std::string& bytes) override {
    ask([&] { store_->set(key, std::vector<std::uint8_t>(bytes.begin(), bytes.end())); });
  }
  std::optional<std::string> get(const std::string& key) override {
    std::optional<std::string> value;
    ask([&] {
      if (!store_->check({key})) return;
      const auto bytes = store_->get(key);
      value.emplace(bytes.begin(), bytes.end());
    });
    return value;
  }
  std::int64_t add(const std::string& key, std::int64_t amount) override {
    std::int64_t value = 0;
    ask([&] { value = store_->add(key, amount); });
    return value;
  }

 private:
  template <typename Call>
  void ask(const Call& call) const {
    try {
      call();
    } catch (const std::exception& error) {
      PENTATRON_THROW(kComm, "the rendezvous of rank 0 at {} is gone ({})", place_,
                      short_message(error));
    }
  }

  c10::intrusive_ptr<c10d::PrefixStore> store_;
  std::string place_;
};

}  // namespace

std::string short_message(const std::exception& error) {
  const auto* library = dynamic_cast<const c10::Error*>(&error);
  std::string text = library != nullptr ? library->what_without_backtrace() : error.what();
  return text.substr(0, text.find('\n'));
}

c10::intrusive_ptr<c10d::Store> connect_store(const GlooOptions& options, bool serve) {
  c10d::TCPStoreOptions store;
  store.port = static_cast<std::uint16_t>(options.master_port);
  store.isServer = serve;
  store.waitWorkers = false;
  if (serve) store.masterListenFd = listen_on(options);  // the store closes it
  store.timeout = options.timeout;
  try {
    return c10::make_intrusive<c10d::TCPStore>(options.master_addr, store);
  } catch (const std::exception& error) {
    PENTATRON_THROW(kComm,
                    "rank {} cannot reach the rendezvous of rank 0 at {}:{} within {} ms: {} "
                    "(--master-addr, --master-port or MASTER_ADDR, MASTER_PORT)",
                    options.rank, options.master_addr, options.master_port, options.timeout.count(),
                    short_message(error));
  }
}

std::string local_address_towards(const std::string& host, std::int64_t port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  const int rc = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  PENTATRON_CHECK(rc == 0, kComm, "cannot resolve the rendezvous host '{}': {} (MASTER_ADDR)", host,
                  gai_strerror(rc));
  std::string address;
  for (const addrinfo* entry = found; entry != nullptr && address.empty(); entry = entry->ai_next) {
    const int fd = ::socket(entry->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    sockaddr_storage own{};
    socklen_t length = sizeof(own);
    char text[NI_MAXHOST] = {};
    if (::connect(fd, entry->ai_addr, entry->ai_addrlen) == 0 &&
        ::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &length) == 0 &&
        ::getnameinfo(reinterpret_cast<sockaddr*>(&own), length, text, sizeof(text), nullptr, 0,
                      NI_NUMERICHOST) == 0) {
      address = text;
    }
    ::close(fd);
  }
  ::freeaddrinfo(found);
  PENTATRON_CHECK(!address.empty(), kComm, "no route to the rendezvous host '{}' (MASTER_ADDR)",
                  host);
  return address;
}

std::unique_ptr<Store> open_rendezvous_store(const GlooOptions& options,
                                             const std::string& prefix) {
  return std::make_unique<RendezvousStore>(options, prefix);
}

}  // namespace pentatron::comm
