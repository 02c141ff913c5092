// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

// Meetings of rank threads over raw memory: the part of the threads backend that knows no tensors,
// so that ThreadSanitizer can see all of it. Operations are truly asynchronous: post() leaves this
// member's part and returns; whoever comes last carries the operation out for all members; wait()
// blocks until that has happened.
namespace pentatron::comm::threads {

class Meeting;

// One operation in progress. All fields are guarded by the world's mutex.
struct Round {
  enum class State { kOpen, kRunning, kDone };
  State state = State::kOpen;
  bool abandoned = false;             // a member left it by an exception: never carried out
  std::string label;                  // "all_reduce #3 (fp32 x 8, sum)"
  std::string fingerprint;            // of the first member that came
  int first_member = -1;              // in the meeting
  std::vector<int> members;           // of the meeting, in the order of payloads
  std::vector<const void*> payloads;  // null until the member came
  std::size_t num_arrived = 0;
  [[nodiscard]] bool ready() const { return num_arrived == members.size(); }
};
using Ticket = std::shared_ptr<Round>;

// What all rank threads of a process share. Lives as long as the longest-lived member needs it.
class World final : public std::enable_shared_from_this<World> {
 public:
  struct Failure {
    std::int64_t rank;
    std::string message;
  };

  World(std::int64_t size, std::chrono::milliseconds timeout);

  [[nodiscard]] std::int64_t size() const { return size_; }
  // The meeting of `ranks` under `name`, the same object for all members. A rank that asks again
  // for a name gets the next generation of it. Other ranks under one name: kComm error and poison.
  [[nodiscard]] std::shared_ptr<Meeting> meet(std::int64_t rank, const std::string& name,
                                              const std::vector<std::int64_t>& ranks);
  // The first failure is kept; everybody that waits or comes later gets a kComm error with it.
  void poison(std::int64_t rank, const std::string& message);
  // The rank's thread ends: operations that still need it fail instead of waiting for the timeout.
  void leave(std::int64_t rank);
  [[nodiscard]] std::optional<Failure> failure() const;

 private:
  friend class Meeting;
  void poison_locked(std::int64_t rank, const std::string& message);

  const std::int64_t size_;
  const std::chrono::milliseconds timeout_;
  mutable std::mutex mutex_;
  std::unique_ptr<std::condition_variable[]> wake_;  // one a rank
  std::vector<bool> left_;
  std::optional<Failure> failure_;
  std::map<std::pair<std::string, std::uint64_t>, std::weak_ptr<Meeting>> meetings_;
  std::vector<std::map<std::string, std::uint64_t>>
      generations_;  // per rank: times a name was asked
};

// The meeting point of one group. Members are numbered 0..size-1 in order of world rank.
class Meeting final {
 public:
  // Carries out the operation from the members' payloads, in order of member.
  using Execute = std::function<void(std::span<const void* const>)>;

  Meeting(std::shared_ptr<World> world, std::string name, std::vector<std::int64_t> ranks);

  // The member's next collective. `payload` stays valid until wait() or abandon(). All members'
  // n-th calls meet; op and fingerprint must agree: otherwise kComm error naming both, and poison.
  [[nodiscard]] Ticket post(int member, const std::string& op, const std::string& fingerprint,
                            const void* payload, const Execute& execute);
  // The k-th send of (member, peer) meets the k-th receive; `bytes` are copied when both are there.
  [[nodiscard]] Ticket post_send(int member, int peer, const std::string& fingerprint,
                                 const void* data, std::size_t bytes);
  [[nodiscard]] Ticket post_recv(int member, int peer, const std::string& fingerprint, void* data,
                                 std::size_t bytes);
  // Returns when the operation was carried out; kComm error on poison, timeout or a member that
  // ended.
  void wait(int member, const Ticket& ticket);
  // Whether the operation was carried out.
  [[nodiscard]] bool done(const Ticket& ticket) const;
  // For destructors during an exception: the payload is not touched after this returns.
  void abandon(int member, const Ticket& ticket);

  [[nodiscard]] const std::vector<std::int64_t>& ranks() const { return ranks_; }

 private:
  struct Arrival {
    int member;
    std::size_t position;  // in Round::members
    const std::string& fingerprint;
    const void* payload;
  };
  [[nodiscard]] Ticket post_pair(int member, int source, int target, const std::string& fingerprint,
                                 const void* data, std::size_t bytes);
  void throw_if_failed(int member, const std::string& label) const;
  // Enters the arrival and, if it is the last one, carries the operation out (lock released
  // meanwhile).
  void arrive(std::unique_lock<std::mutex>& lock, const Ticket& round, const Arrival& arrival,
              const Execute& execute);
  void notify(const Round& round);
  [[nodiscard]] std::string missing(const Round& round, bool only_left) const;

  const std::shared_ptr<World> world_;
  const std::string name_;
  const std::vector<std::int64_t> ranks_;
  std::vector<std::uint64_t> next_sequence_;                // per member
  std::map<std::uint64_t, Ticket> open_;                    // collectives that miss members
  std::map<std::pair<int, int>, std::deque<Ticket>> mail_;  // (source, target): half-filled pairs
  std::map<std::pair<int, int>, std::pair<std::uint64_t, std::uint64_t>> mail_count_;
};

}  // namespace pentatron::comm::threads
