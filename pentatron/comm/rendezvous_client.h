// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "pentatron/comm/rendezvous_address.h"
#include "pentatron/comm/rendezvous_wire.h"
#include "pentatron/comm/store.h"

namespace pentatron::comm {

// Where rank 0 serves, and the proof of belonging.
struct RendezvousPlace {
  std::string host = "127.0.0.1";
  std::int64_t port = 0;
  std::string token = {};
  std::int64_t rank = 0;  // who asks, for messages
};

// A connection to rank 0's RendezvousServer. Every call ends within its limit, whatever has become
// of rank 0: a stopped process keeps its connections open and never answers. Safe from several
// threads; they wait for each other.
class RendezvousClient final : public Store {
 public:
  using Limit = std::chrono::milliseconds;

  // Connects, waiting up to `limit` for rank 0 to come; `limit` also holds for the calls of Store.
  // A host that cannot be resolved (at once), nobody or a silent one there, another service or
  // another job: kComm.
  RendezvousClient(RendezvousPlace place, Limit limit);
  ~RendezvousClient() override;
  RendezvousClient(const RendezvousClient&) = delete;
  RendezvousClient& operator=(const RendezvousClient&) = delete;

  enum class Outcome { kOk, kAbsent, kFailed, kNoAnswer, kGone };
  struct Reply {
    Outcome outcome = Outcome::kGone;
    std::string body = {};  // kGone and kNoAnswer: why
  };
  // Never throws for what rank 0 does. After kNoAnswer and kGone the next call connects anew.
  [[nodiscard]] Reply ask(const wire::Request& request, Limit limit);
  // Makes calls that wait end with kNoAnswer, now and from now on.
  void cancel() { cancelled_ = true; }

  // The same with kComm errors for kNoAnswer, kGone and kFailed.
  void set(const std::string& key, const std::string& bytes) override;
  [[nodiscard]] std::optional<std::string> get(const std::string& key) override;
  std::int64_t add(const std::string& key, std::int64_t amount) override;
  // Waits up to `wait` (at most a minute) for the key to be there.
  [[nodiscard]] std::optional<std::string> await(const std::string& key, Limit wait);
  // Sets the key unless it is there; returns the value that is there now.
  [[nodiscard]] std::string set_absent(const std::string& key, const std::string& bytes);
  [[nodiscard]] bool remove(const std::string& key);
  [[nodiscard]] std::int64_t count();

  [[nodiscard]] Limit limit() const { return limit_; }
  [[nodiscard]] std::string where() const;  // "127.0.0.1:29500"

 private:
  using Clock = std::chrono::steady_clock;
  enum class Step { kDone, kNoAnswer, kGone };

  [[nodiscard]] Step connect(Clock::time_point deadline);
  [[nodiscard]] Step try_address(const SocketAddress& address, Clock::time_point deadline);
  [[nodiscard]] Step prove(Clock::time_point deadline);
  [[nodiscard]] Step wait_for(short events, Clock::time_point deadline) const;
  [[nodiscard]] Step send_all(std::string_view bytes, Clock::time_point deadline);
  [[nodiscard]] Step receive_some(Clock::time_point deadline);
  void close();
  [[nodiscard]] Reply checked(const wire::Request& request);

  const RendezvousPlace place_;
  const Limit limit_;
  const std::vector<SocketAddress> addresses_;
  std::atomic<bool> cancelled_{false};
  std::timed_mutex mutex_;  // of what follows
  int fd_ = -1;
  bool was_connected_ = false;
  bool refused_ = false;  // the last attempt: nobody listens
  std::string in_;
  std::string why_;  // the last failure
};

}  // namespace pentatron::comm
