// SPDX-License-Identifier: Apache-2.0
#include "pentatron/comm/threads_core.h"

#include <fmt/ranges.h>

#include <cstring>

#include "pentatron/base/error.h"

namespace pentatron::comm::threads {

World::World(std::int64_t size, std::chrono::milliseconds timeout)
    : size_(size), timeout_(timeout) {
  PENTATRON_CHECK(size >= 1, kConfig, "threads backend: world size {} (--world-size) is below 1",
                  size);
  wake_ = std::make_unique<std::condition_variable[]>(static_cast<std::size_t>(size));
  left_.assign(static_cast<std::size_t>(size), false);
  generations_.resize(static_cast<std::size_t>(size));
}

std::shared_ptr<Meeting> World::meet(std::int64_t rank, const std::string& name,
                                     const std::vector<std::int64_t>& ranks) {
  std::shared_ptr<Meeting> meeting;
  const std::unique_lock lock(mutex_);
  const std::uint64_t generation = generations_[static_cast<std::size_t>(rank)][name]++;
  std::weak_ptr<Meeting>& entry = meetings_[{name, generation}];
  meeting = entry.lock();
  if (!meeting) {
    meeting = std::make_shared<Meeting>(shared_from_this(), name, ranks);
    entry = meeting;
    return meeting;
  }
  if (meeting->ranks() != ranks) {
    const std::string message = fmt::format(
        "group '{}': rank {} names the members [{}], another rank named [{}]; all ranks must make "
        "the same groups in the same order",
        name, rank, fmt::join(ranks, ", "), fmt::join(meeting->ranks(), ", "));
    poison_locked(rank, message);
    PENTATRON_THROW(kComm, "{}", message);
  }
  return meeting;
}

void World::poison(std::int64_t rank, const std::string& message) {
  const std::unique_lock lock(mutex_);
  poison_locked(rank, message);
}

void World::poison_locked(std::int64_t rank, const std::string& message) {
  if (!failure_) failure_ = Failure{rank, message};
  for (std::int64_t r = 0; r < size_; ++r) wake_[static_cast<std::size_t>(r)].notify_all();
}

void World::leave(std::int64_t rank) {
  const std::unique_lock lock(mutex_);
  left_[static_cast<std::size_t>(rank)] = true;
  for (std::int64_t r = 0; r < size_; ++r) wake_[static_cast<std::size_t>(r)].notify_all();
}

std::optional<World::Failure> World::failure() const {
  const std::unique_lock lock(mutex_);
  return failure_;
}

Meeting::Meeting(std::shared_ptr<World> world, std::string name, std::vector<std::int64_t> ranks)
    : world_(std::move(world)), name_(std::move(name)), ranks_(std::move(ranks)) {
  next_sequence_.assign(ranks_.size(), 0);
}

void Meeting::throw_if_failed(int member, const std::string& label) const {
  if (!world_->failure_) return;
  PENTATRON_THROW(kComm, "group '{}', {} on rank {}: rank {} failed: {}", name_, label,
                  ranks_[static_cast<std::size_t>(member)], world_->failure_->rank,
                  world_->failure_->message);
}

std::string Meeting::missing(const Round& round, bool only_left) const {
  std::vector<std::int64_t> absent;
  for (std::size_t i = 0; i < round.members.size(); ++i) {
    const std::int64_t rank = ranks_[static_cast<std::size_t>(round.members[i])];
    const bool left = world_->left_[static_cast<std::size_t>(rank)];
    if (round.payloads[i] == nullptr && (left || !only_left)) absent.push_back(rank);
  }
  return fmt::format("{}", fmt::join(absent, ", "));
}

void Meeting::notify(const Round& round) {
  for (int member : round.members) {
    world_->wake_[static_cast<std::size_t>(ranks_[static_cast<std::size_t>(member)])].notify_all();
  }
}

void Meeting::arrive(std::unique_lock<std::mutex>& lock, const Ticket& round,
                     const Arrival& arrival, const Execute& execute) {
  const std::int64_t rank = ranks_[static_cast<std::size_t>(arrival.member)];
  if (round->first_member < 0) {
    round->first_member = arrival.member;
    round->fingerprint = arrival.fingerprint;
  } else if (round->fingerprint != arrival.fingerprint) {
    const std::string message =
        fmt::format("group '{}': the members disagree at {}: rank {} called {}, rank {} called {}",
                    name_, round->label, ranks_[static_cast<std::size_t>(round->first_member)],
                    round->fingerprint, rank, arrival.fingerprint);
    world_->poison_locked(rank, message);
    PENTATRON_THROW(kComm, "{}", message);
  }
  round->payloads[arrival.position] = arrival.payload;
  ++round->num_arrived;
  if (!round->ready() || round->abandoned) return;

  // Everybody's memory stays untouched by its owner while the round runs, so the lock is not
  // needed.
  round->state = Round::State::kRunning;
  lock.unlock();
  std::string error;
  try {
    execute(round->payloads);
  } catch (const std::exception& exception) {
    error = fmt::format("group '{}', {}: {}", name_, round->label, exception.what());
  }
  lock.lock();
  if (error.empty()) {
    round->state = Round::State::kDone;
    notify(*round);
    return;
  }
  round->state = Round::State::kOpen;
  round->abandoned = true;
  world_->poison_locked(rank, error);
  PENTATRON_THROW(kComm, "{}", error);
}

Ticket Meeting::post(int member, const std::string& op, const std::string& fingerprint,
                     const void* payload, const Execute& execute) {
  std::unique_lock lock(world_->mutex_);
  const std::uint64_t sequence = next_sequence_[static_cast<std::size_t>(member)]++;
  throw_if_failed(member, fmt::format("{} #{}", op, sequence));
  Ticket& entry = open_[sequence];
  if (!entry) {
    entry = std::make_shared<Round>();
    entry->label = fmt::format("{} #{}", op, sequence);
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      entry->members.push_back(static_cast<int>(i));
    }
    entry->payloads.assign(ranks_.size(), nullptr);
  }
  const Ticket round = entry;
  if (round->num_arrived + 1 == ranks_.size()) open_.erase(sequence);
  const std::string whole = fmt::format("{}({})", op, fingerprint);
  arrive(lock, round, {member, static_cast<std::size_t>(member), whole, payload}, execute);
  return round;
}

Ticket Meeting::post_pair(int member, int source, int target, const std::string& fingerprint,
                          const void* data, std::size_t bytes) {
  std::unique_lock lock(world_->mutex_);
  const std::pair<int, int> key(source, target);
  const std::size_t position = member == source ? 0 : 1;
  auto& count = mail_count_[key];
  const std::uint64_t sequence = position == 0 ? count.first++ : count.second++;
  const std::string label = fmt::format("{} #{} (rank {} to {})", position == 0 ? "send" : "recv",
                                        sequence, ranks_[static_cast<std::size_t>(source)],
                                        ranks_[static_cast<std::size_t>(target)]);
  throw_if_failed(member, label);
  std::deque<Ticket>& queue = mail_[key];
  Ticket round;
  if (!queue.empty() && queue.front()->payloads[position] == nullptr) {
    round = queue.front();
    queue.pop_front();
  } else {
    round = std::make_shared<Round>();
    round->label = label;
    round->members = {source, target};
    round->payloads.assign(2, nullptr);
    queue.push_back(round);
  }
  // A tensor without elements may have no memory; null means "not here yet".
  static constexpr char kNothing = 0;
  if (data == nullptr) data = &kNothing;
  arrive(lock, round, {member, position, fingerprint, data},
         [bytes](std::span<const void* const> payloads) {
           if (bytes > 0) std::memcpy(const_cast<void*>(payloads[1]), payloads[0], bytes);
         });
  return round;
}

Ticket Meeting::post_send(int member, int peer, const std::string& fingerprint, const void* data,
                          std::size_t bytes) {
  return post_pair(member, member, peer, fingerprint, data, bytes);
}

Ticket Meeting::post_recv(int member, int peer, const std::string& fingerprint, void* data,
                          std::size_t bytes) {
  return post_pair(member, peer, member, fingerprint, data, bytes);
}

bool Meeting::done(const Ticket& ticket) const {
  const std::lock_guard lock(world_->mutex_);
  return ticket->state == Round::State::kDone;
}

void Meeting::wait(int member, const Ticket& ticket) {
  const std::int64_t rank = ranks_[static_cast<std::size_t>(member)];
  const auto deadline = std::chrono::steady_clock::now() + world_->timeout_;
  std::unique_lock lock(world_->mutex_);
  std::condition_variable& wake = world_->wake_[static_cast<std::size_t>(rank)];
  while (ticket->state != Round::State::kDone) {
    if (ticket->state ==
        Round::State::kRunning) {  // finishes soon, and reads our memory until then
      wake.wait(lock);
      continue;
    }
    throw_if_failed(member, ticket->label);
    std::string problem;
    if (const std::string left = missing(*ticket, true); !left.empty()) {
      problem = fmt::format("group '{}', {} on rank {}: rank {} ended without joining it", name_,
                            ticket->label, rank, left);
    } else if (std::chrono::steady_clock::now() >= deadline) {
      problem = fmt::format(
          "group '{}', {} on rank {}: no answer within {} ms; still missing: rank {} "
          "(--distributed-timeout-minutes)",
          name_, ticket->label, rank, world_->timeout_.count(), missing(*ticket, false));
    }
    if (!problem.empty()) {
      world_->poison_locked(rank, problem);
      PENTATRON_THROW(kComm, "{}", problem);
    }
    wake.wait_until(lock, deadline);
  }
}

void Meeting::abandon(int member, const Ticket& ticket) {
  const std::int64_t rank = ranks_[static_cast<std::size_t>(member)];
  std::unique_lock lock(world_->mutex_);
  std::condition_variable& wake = world_->wake_[static_cast<std::size_t>(rank)];
  wake.wait(lock, [&] { return ticket->state != Round::State::kRunning; });
  ticket->abandoned = true;
}

}  // namespace pentatron::comm::threads
