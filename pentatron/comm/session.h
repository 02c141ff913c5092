// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "pentatron/comm/backend.h"
#include "pentatron/comm/rendezvous_client.h"
#include "pentatron/comm/rendezvous_server.h"

namespace pentatron::comm {

// What the groups of one process rank share: the rendezvous, the news of the others (failed or
// silent), and the waits to end when bad news comes. A thread tells rank 0 ten times a second that
// this rank lives and what it does, and hears of the first failure. No wait in here is without a
// limit.
class Session final {
 public:
  // Returns when all ranks have signed in; errors as make_gloo_backend.
  explicit Session(const GlooOptions& options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  [[nodiscard]] const GlooOptions& options() const { return options_; }
  [[nodiscard]] const std::shared_ptr<RendezvousClient>& client() const { return client_; }
  // A connection apart from ours.
  [[nodiscard]] std::unique_ptr<RendezvousClient> connect() const;
  // Where this rank's data connections leave from.
  [[nodiscard]] std::string local_address() const;

  // This rank failed: told to the others, the first of all failures stays.
  void poison(const std::string& message);
  // Known here alone: what waits ends, nothing more begins.
  void fail(const std::string& text);
  // The first failure that is known, or nothing; with `ask` rank 0 is asked now.
  [[nodiscard]] std::string failure(bool ask);
  // " (rank 2 has not been heard of for 31 s, last in 'saving')", or nothing. Asks rank 0.
  [[nodiscard]] std::string silence();
  // Who is gone or silent, in the words of silence(), where a connection to a member was lost;
  // failure() then tells whether a reason has been reported.
  [[nodiscard]] std::string why_gone();

  void note_phase(std::string_view phase);
  // This rank has made so many calls in the group; rank 0 hears of it with the next beat.
  void note_calls(const std::string& group, std::int64_t calls);
  // "; still missing: rank 2 (6 calls, last in 'saving')", or nothing: the members that have not
  // made so many calls in the group. Asks rank 0, after the time that a beat needs.
  [[nodiscard]] std::string missing(const std::string& group, std::int64_t calls,
                                    const std::vector<std::int64_t>& ranks);

  // Runs until `done` (under the mutex), a failure, or the timeout; returns what ended it before
  // `done`, or an empty text. `missing` is asked who is, when the time is over.
  [[nodiscard]] std::string wait_until(const std::function<bool()>& done,
                                       const std::function<std::string()>& missing);
  void notify(const std::function<void()>& change);

  // Waits inside the library: a failure calls `abort` for those that have entered. False: failed
  // already.
  [[nodiscard]] bool enter_wait(const void* id, std::function<void()> abort);
  void leave_wait(const void* id);

  // A clean end; rank 0, which serves, leaves last.
  void shutdown();

 private:
  using Clock = std::chrono::steady_clock;

  void open();
  void sign_in();
  void wait_for_members();
  void tell_seen(RendezvousClient& client);
  void watch();
  void beat();
  void look_for_silence();
  void stop_watching();

  GlooOptions options_;
  RendezvousPlace place_;
  std::chrono::milliseconds notice_;  // of silence before it is told
  std::unique_ptr<RendezvousServer> server_;
  std::shared_ptr<RendezvousClient> client_;
  std::unique_ptr<RendezvousClient> watch_client_;

  std::mutex stop_mutex_;
  std::condition_variable stop_changed_;
  bool stop_ = false;
  // Of the watching thread.
  Clock::time_point last_answer_;
  std::string first_phase_;            // rank 0's
  std::map<std::int64_t, bool> told_;  // ranks whose silence has been logged
  std::thread watcher_;
  std::atomic<bool> seen_{false};  // rank 0 has been told that the failure is known here

  std::mutex mutex_;
  std::condition_variable changed_;
  std::string failure_;
  std::string phase_;
  std::map<std::string, std::int64_t> new_calls_;  // not yet told, by group
  std::map<const void*, std::function<void()>> waits_;
};

}  // namespace pentatron::comm
