// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "pentatron/comm/rendezvous_wire.h"

namespace pentatron::comm {

// Small values for the ranks of one job, served by rank 0 from a thread of its own. A connection
// that does not prove within ten seconds that it knows the job's token is closed and changes
// nothing. It also hears each rank's beats, so that it can say who has fallen silent where.
class RendezvousServer final {
 public:
  // Key under which the first failure of the job stands; beats are answered with it.
  static constexpr const char* kFailureKey = "failure";

  // Takes over a listening socket.
  RendezvousServer(int listening_fd, std::string token);
  ~RendezvousServer();
  RendezvousServer(const RendezvousServer&) = delete;
  RendezvousServer& operator=(const RendezvousServer&) = delete;

  // A rank that has given signs of life before and none for `longer_than`.
  struct Silence {
    std::int64_t rank = 0;
    double seconds = 0;
    std::string phase;  // what it was last known to do; printable
  };
  [[nodiscard]] std::vector<Silence> silent_ranks(std::chrono::milliseconds longer_than) const;
  // The first rank whose beats ended with its connection and without a word, as "rank 3 is gone,
  // last in 'saving'"; empty where there is none.
  [[nodiscard]] std::string first_gone() const;
  // Other ranks than 0 whose beats come over a connection that is open.
  [[nodiscard]] std::int64_t live_peers() const { return live_peers_; }
  // Those of `ranks` whose last beat told of fewer than `calls` calls in the group, as "rank 2 (6
  // calls, last in 'saving')", several joined by ", ".
  [[nodiscard]] std::string behind(const std::string& group, std::int64_t calls,
                                   const std::vector<std::int64_t>& ranks) const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Connection {
    int fd = -1;
    std::string nonce;
    bool trusted = false;
    Clock::time_point since;
    std::string in = {};
    std::string out = {};
    bool closing = false;   // after what is still to be sent
    bool awaiting = false;  // its last request has no answer yet
    std::string awaited = {};
    Clock::time_point awaits_until = {};
    std::int64_t beats_of = -1;  // the rank whose beats it brings
  };
  struct Beat {
    Clock::time_point when;
    std::string phase;
    std::map<std::string, std::int64_t> calls = {};  // by group
    Clock::time_point gone = {};                     // when its connection was lost; else 0
  };

  void serve();
  void accept_all();
  [[nodiscard]] bool make_room();
  void read_from(Connection& connection);
  void write_to(Connection& connection);
  void prove(Connection& connection);
  void answer_all(Connection& connection);
  void await(Connection& connection, const wire::Request& request);
  // Answers those whose key has come or whose time is over; returns the milliseconds until the next
  // one's is.
  [[nodiscard]] int answer_awaiting();
  [[nodiscard]] std::string answer(const wire::Request& request);
  [[nodiscard]] std::string answer_beat(const wire::Request& request);
  void drop_closed();
  void lost(std::int64_t rank);

  const int listening_fd_;
  const std::string token_;
  int wake_fds_[2] = {-1, -1};
  std::vector<Connection> connections_;
  std::map<std::string, std::string> values_;

  mutable std::mutex mutex_;  // of the beats
  std::map<std::int64_t, Beat> beats_;
  std::atomic<std::int64_t> live_peers_{0};
  std::thread thread_;
};

// "rank 2 has not been heard of for 31 s, last in 'saving'", several joined by "; ".
[[nodiscard]] std::string describe(const std::vector<RendezvousServer::Silence>& silences);

}  // namespace pentatron::comm
