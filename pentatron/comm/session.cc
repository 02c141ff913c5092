// SPDX-License-Identifier: Apache-2.0
#include "pentatron/comm/session.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/base/log.h"
#include "pentatron/base/printable.h"
#include "pentatron/comm/agent_store.h"
#include "pentatron/comm/job_environment.h"

namespace pentatron::comm {
namespace {

using std::chrono::milliseconds;
using Outcome = RendezvousClient::Outcome;
constexpr milliseconds kBeat{100};
constexpr milliseconds kBeatAnswer{5000};  // then the connection is made anew
constexpr milliseconds kLongestNotice{30'000};
constexpr milliseconds kLastWords{2000};  // for what a failing rank still asks and tells
constexpr milliseconds kLinger{1500};
constexpr milliseconds kFirstBeats{300};  // by then every rank that lives has given a sign of it
constexpr milliseconds kAwaitSlice{100};  // between looks at the failure
constexpr const char* kLoopback = "127.0.0.1";
constexpr const char* kSeenKey = "failure-seen";
constexpr const char* kShutdownKey = "shutdown";
constexpr const char* kWorldKey = "world";
constexpr const char* kVersionKey = "version";
constexpr const char* kMembersKey = "members";
constexpr const char* kCompleteKey = "complete";
constexpr const char* kAgentKey = "rendezvous";

// Ten beats a second, fewer of each rank where rank 0 hears thousands.
milliseconds beat_pause(std::int64_t world_size) {
  return std::max(kBeat, milliseconds(world_size / 2));
}

}  // namespace

Session::Session(const GlooOptions& options)
    : options_(options), notice_(std::min(kLongestNotice, options.timeout / 2)) {
  phase_ = "joining the rendezvous";
  open();
  client_ = std::make_shared<RendezvousClient>(place_, options_.timeout);
  sign_in();
  if (options_.world_size > 1) {
    watch_client_ = connect();
    last_answer_ = Clock::now();
    watcher_ = std::thread([this] { watch(); });
  }
  try {
    wait_for_members();
  } catch (const std::exception& error) {
    poison(error.what());
    stop_watching();
    throw;
  }
}

Session::~Session() { stop_watching(); }

// Serves, or finds out where rank 0 does.
void Session::open() {
  const bool one_machine = all_ranks_here(options_.world_size);
  place_ = {.host = one_machine ? kLoopback : options_.master_addr,
            .port = options_.master_port,
            .token = job_token(),
            .rank = options_.rank};
  if (!agent_serves()) {
    if (options_.rank != 0) return;
    const int fd = listen_at(place_.host, place_.port, options_.rank);
    server_ = std::make_unique<RendezvousServer>(fd, place_.token);
    return;
  }
  if (options_.rank == 0) {
    place_.host =
        one_machine ? kLoopback : local_address_towards(options_.master_addr, options_.master_port);
    place_.token = random_token();
    const int fd = listen_at(place_.host, 0, options_.rank);
    place_.port = port_of(fd);
    server_ = std::make_unique<RendezvousServer>(fd, place_.token);
    write_to_agent(options_, kAgentKey,
                   fmt::format("{} {} {}", place_.host, place_.port, place_.token));
    return;
  }
  std::istringstream found(read_from_agent(options_, kAgentKey));
  found >> place_.host >> place_.port >> place_.token;
}

std::unique_ptr<RendezvousClient> Session::connect() const {
  return std::make_unique<RendezvousClient>(place_, options_.timeout);
}

std::string Session::local_address() const {
  return local_address_towards(place_.host, place_.port);
}

// A second process of this rank must not end the job of the first, so it tells nobody.
void Session::sign_in() {
  const auto joined = client_->add(fmt::format("join/{}", options_.rank), 1);
  PENTATRON_CHECK(joined == 1, kComm,
                  "rank {} joined the rendezvous at {} twice: another run uses the port, or two "
                  "processes have the same RANK",
                  options_.rank, client_->where());
}

// A missing rank is named instead of hanging the first group. Counted by rank 0, so that the work
// grows with the ranks and not with their square.
void Session::wait_for_members() {
  const std::string first = client_->set_absent(
      kWorldKey, fmt::format("{} (rank {})", options_.world_size, options_.rank));
  PENTATRON_CHECK(first.starts_with(fmt::format("{} (", options_.world_size)), kComm,
                  "rank {} expects a world of {} ranks, the first to join one of {} (WORLD_SIZE)",
                  options_.rank, options_.world_size, printable(first, 40));
  // Programs of two versions may say the same options and mean other things by them.
  const std::string program = client_->set_absent(
      kVersionKey, fmt::format("{} (rank {})", PENTATRON_VERSION, options_.rank));
  PENTATRON_CHECK(program.starts_with(PENTATRON_VERSION " ("), kComm,
                  "rank {} is pentatron {}, the first to join is {}: start one version on all "
                  "machines",
                  options_.rank, PENTATRON_VERSION, printable(program, 60));
  if (client_->add(kMembersKey, 1) == options_.world_size) client_->set(kCompleteKey, "1");
  const auto deadline = Clock::now() + options_.timeout;
  const auto complete = [&] {
    try {
      return client_->await(kCompleteKey, std::min(kAwaitSlice, options_.timeout)).has_value();
    } catch (const Error&) {
      // Rank 0 ends once the failure is known here.
      if (failure(false).empty()) throw;
      return false;
    }
  };
  while (!complete()) {
    if (const std::string other = failure(false); !other.empty()) {
      PENTATRON_THROW(kComm, "{}", other);
    }
    if (Clock::now() < deadline) continue;
    std::int64_t missing = 0;
    while (missing + 1 < options_.world_size && client_->get(fmt::format("join/{}", missing))) {
      ++missing;
    }
    PENTATRON_THROW(kComm,
                    "rank {}: rank {} of {} did not join the rendezvous at {} within {} ms{} "
                    "(--distributed-timeout-minutes)",
                    options_.rank, missing, options_.world_size, client_->where(),
                    options_.timeout.count(), silence());
  }
}

void Session::poison(const std::string& message) {
  const std::string text = fmt::format("rank {} failed: {}", options_.rank, message);
  fail(text);
  const auto tell = [&](wire::Op op, const char* key, const std::string& value) {
    return client_->ask({.op = op, .key = key, .value = value}, kLastWords);
  };
  const auto told = tell(wire::Op::kSetAbsent, RendezvousServer::kFailureKey, text);
  if (told.outcome != Outcome::kOk) {
    log::debug("the failure could not be told to the peers: {}", told.body);
    return;
  }
  tell_seen(*client_);
  if (options_.rank != 0) return;
  // The rendezvous ends with rank 0: leave the peers that live the time to read the reason.
  const auto deadline = Clock::now() + kLinger;
  while (Clock::now() < deadline) {
    const auto seen = tell(wire::Op::kAdd, kSeenKey, "0");
    if (std::atoll(seen.body.c_str()) >= options_.world_size) return;
    // Those who have died will not ask, and those who have ended have read it.
    const bool alone = server_ != nullptr && server_->live_peers() == 0;
    if (alone && Clock::now() > deadline - kLinger + kFirstBeats) return;
    std::this_thread::sleep_for(milliseconds(10));
  }
}

// Once: rank 0 counts who knows of the failure before it ends.
void Session::tell_seen(RendezvousClient& client) {
  if (seen_.exchange(true)) return;
  static_cast<void>(client.ask({.op = wire::Op::kAdd, .key = kSeenKey, .value = "1"}, kLastWords));
}

void Session::fail(const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (!failure_.empty()) return;
  failure_ = text;
  changed_.notify_all();
  for (const auto& [id, abort] : waits_) abort();
}

std::string Session::failure(bool ask) {
  if (ask && options_.world_size > 1) {
    const auto reply = client_->ask(
        {.op = wire::Op::kGet, .key = RendezvousServer::kFailureKey, .value = {}}, kLastWords);
    if (reply.outcome == Outcome::kOk) {
      fail(printable(reply.body));
      tell_seen(*client_);
    }
  }
  const std::lock_guard lock(mutex_);
  return failure_;
}

std::string Session::why_gone() {
  if (!failure(true).empty()) return {};
  // A death shows in several connections, and its launcher tells of it: give these a moment.
  std::this_thread::sleep_for(kBeat);
  return failure(true).empty() ? silence() : std::string();
}

std::string Session::silence() {
  const auto reply = client_->ask({.op = wire::Op::kSilent,
                                   .key = {},
                                   .value = std::to_string(std::min(notice_, kLastWords).count())},
                                  kLastWords);
  if (reply.outcome == Outcome::kNoAnswer) {
    const std::lock_guard lock(mutex_);
    return fmt::format(" (rank 0 does not answer, last in '{}')", first_phase_);
  }
  return reply.body.empty() || reply.outcome != Outcome::kOk
             ? std::string()
             : fmt::format(" ({})", printable(reply.body));
}

void Session::note_phase(std::string_view phase) {
  const std::lock_guard lock(mutex_);
  phase_ = phase;
}

void Session::note_calls(const std::string& group, std::int64_t calls) {
  const std::lock_guard lock(mutex_);
  new_calls_[group] = calls;
}

std::string Session::missing(const std::string& group, std::int64_t calls,
                             const std::vector<std::int64_t>& ranks) {
  std::this_thread::sleep_for(2 * beat_pause(options_.world_size));
  const auto reply = client_->ask({.op = wire::Op::kBehind,
                                   .key = group,
                                   .value = fmt::format("{} {}", calls, fmt::join(ranks, " "))},
                                  kLastWords);
  if (reply.outcome != Outcome::kOk || reply.body.empty()) return {};
  return fmt::format("; still missing: {}", printable(reply.body));
}

std::string Session::wait_until(const std::function<bool()>& done,
                                const std::function<std::string()>& missing) {
  std::unique_lock lock(mutex_);
  const bool ended =
      changed_.wait_for(lock, options_.timeout, [&] { return done() || !failure_.empty(); });
  if (ended && done()) return {};
  if (!failure_.empty()) return failure_;
  lock.unlock();
  std::string text = fmt::format("no answer within {} ms{} (--distributed-timeout-minutes){}",
                                 options_.timeout.count(), missing ? missing() : "", silence());
  fail(text);
  return text;
}

void Session::notify(const std::function<void()>& change) {
  const std::lock_guard lock(mutex_);
  change();
  changed_.notify_all();
}

bool Session::enter_wait(const void* id, std::function<void()> abort) {
  const std::lock_guard lock(mutex_);
  if (!failure_.empty()) return false;
  waits_[id] = std::move(abort);
  return true;
}

void Session::leave_wait(const void* id) {
  const std::lock_guard lock(mutex_);
  waits_.erase(id);
}

void Session::shutdown() {
  note_phase("ending");
  stop_watching();
  if (!failure(false).empty()) return;
  client_->add(kShutdownKey, 1);
  if (options_.rank != 0) return;
  const auto deadline = Clock::now() + options_.timeout;
  while (client_->add(kShutdownKey, 0) < options_.world_size) {
    // The watch thread has ended, so failures are looked for here.
    if (const std::string reason = failure(true); !reason.empty()) {
      PENTATRON_THROW(kComm, "rank 0: ended, but {}", reason);
    }
    PENTATRON_CHECK(Clock::now() < deadline, kComm,
                    "rank 0: not all ranks reached shutdown within {} ms{}",
                    options_.timeout.count(), silence());
    std::this_thread::sleep_for(milliseconds(2));
  }
}

void Session::watch() {
  const milliseconds pause = beat_pause(options_.world_size);
  std::unique_lock lock(stop_mutex_);
  auto last = Clock::now();
  while (!stop_changed_.wait_for(lock, pause, [this] { return stop_; })) {
    lock.unlock();
    beat();
    // After a pause of our own (the whole machine slept) the others' silence says nothing yet, nor
    // does it after a failure, which ends them.
    const auto now = Clock::now();
    if (now - last < pause + kBeatAnswer * 2 && failure(false).empty()) look_for_silence();
    last = now;
    lock.lock();
  }
}

void Session::beat() {
  std::string value;
  std::map<std::string, std::int64_t> calls;
  {
    const std::lock_guard lock(mutex_);
    if (!failure_.empty()) return;
    value = phase_;
    calls = std::exchange(new_calls_, {});
  }
  for (const auto& [group, number] : calls) {
    value += fmt::format("{}{} {}", wire::kProgressMark, number, group);
  }
  const auto reply = watch_client_->ask(
      {.op = wire::Op::kBeat, .key = std::to_string(options_.rank), .value = std::move(value)},
      std::min(kBeatAnswer, notice_));
  if (reply.outcome != Outcome::kOk) {
    const std::lock_guard lock(mutex_);
    new_calls_.merge(calls);  // what was called since stays
  }
  if (reply.outcome == Outcome::kNoAnswer) return;
  last_answer_ = Clock::now();
  if (reply.outcome == Outcome::kOk) {
    const std::lock_guard lock(mutex_);
    first_phase_ = printable(reply.body, 200);
    return;
  }
  if (reply.outcome == Outcome::kFailed) {
    fail(printable(reply.body));  // before rank 0 may end
    tell_seen(*watch_client_);
    return;
  }
  const std::lock_guard stop(stop_mutex_);
  if (!stop_) {
    fail(fmt::format("rank 0 ended: its rendezvous at {} is gone ({})", watch_client_->where(),
                     reply.body));
  }
}

// Tells once of each rank that has fallen silent, and when it is back.
void Session::look_for_silence() {
  std::vector<RendezvousServer::Silence> silences;
  if (server_) {
    silences = server_->silent_ranks(notice_);
  } else if (Clock::now() - last_answer_ >= notice_) {
    const std::lock_guard lock(mutex_);
    const std::chrono::duration<double> silent = Clock::now() - last_answer_;
    silences.push_back({.rank = 0, .seconds = silent.count(), .phase = first_phase_});
  }
  std::map<std::int64_t, bool> still;
  for (const RendezvousServer::Silence& silence : silences) {
    still[silence.rank] = true;
    if (told_.contains(silence.rank)) continue;
    log::warn("rank {}: {}; what waits for it ends {} s after it began to wait", options_.rank,
              describe({silence}),
              std::chrono::duration_cast<std::chrono::seconds>(options_.timeout).count());
  }
  for (const auto& [rank, told] : told_) {
    if (!still.contains(rank)) log::info("rank {}: rank {} answers again", options_.rank, rank);
  }
  told_ = std::move(still);
}

void Session::stop_watching() {
  if (!watcher_.joinable()) return;
  {
    const std::lock_guard lock(stop_mutex_);
    stop_ = true;
    stop_changed_.notify_all();
  }
  watch_client_->cancel();
  watcher_.join();
  // The server is told, so that a rank that ended in good order is not taken for a silent one.
  if (!failure(false).empty()) return;
  static_cast<void>(client_->ask(
      {.op = wire::Op::kLeave, .key = std::to_string(options_.rank), .value = {}}, kLastWords));
}

}  // namespace pentatron::comm
