// SPDX-License-Identifier: Apache-2.0
// The torch-free core of the threads backend under ThreadSanitizer: ranks exchange plain memory in
// all ways at once, and fail in all ways. Exit code 0: all values right (a race makes the sanitizer
// end the program with another code).
#include <atomic>
#include <cstdio>
#include <thread>

#include "pentatron/base/error.h"
#include "pentatron/comm/threads_core.h"

namespace pentatron::comm::threads {
namespace {

std::atomic<int> wrong{0};

void require(bool condition, const char* what) {
  if (condition) return;
  ++wrong;
  std::fprintf(stderr, "threads_core_tsan: %s\n", what);
}

template <typename Body>
void with_ranks(int count, World& world, const Body& body) {
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < count; ++rank) {
    ranks.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (const std::exception& error) {
        world.poison(rank, error.what());
      }
      world.leave(rank);
    });
  }
  for (std::thread& thread : ranks) thread.join();
}

std::vector<std::int64_t> first_ranks(int count) {
  std::vector<std::int64_t> ranks;
  for (int rank = 0; rank < count; ++rank) ranks.push_back(rank);
  return ranks;
}

void sum_all(std::span<const void* const> payloads) {
  int total = 0;
  for (const void* payload : payloads) total += *static_cast<const int*>(payload);
  for (const void* payload : payloads) *const_cast<int*>(static_cast<const int*>(payload)) = total;
}

void exchange(int count) {
  const auto world = std::make_shared<World>(count, std::chrono::seconds(60));
  with_ranks(count, *world, [&](int rank) {
    const auto all = world->meet(rank, "all", first_ranks(count));
    std::vector<std::int64_t> pair;
    for (int other = rank / 2 * 2; other < count && other < rank / 2 * 2 + 2; ++other) {
      pair.push_back(other);
    }
    const auto two = world->meet(rank, "pair" + std::to_string(rank / 2), pair);
    for (int turn = 0; turn < 100; ++turn) {
      int value = rank + turn;
      int second = 1;
      const Ticket a = all->post(rank, "sum", "int", &value, sum_all);
      const Ticket b = two->post(rank % 2, "sum", "int", &second, sum_all);
      int sent = rank * 1000 + turn;
      int got = -1;
      const int next = (rank + 1) % count;
      const int before = (rank + count - 1) % count;
      Ticket s;
      Ticket r;
      if (count > 1) {
        s = all->post_send(rank, next, "int", &sent, sizeof(sent));
        r = all->post_recv(rank, before, "int", &got, sizeof(got));
        all->wait(rank, r);
        all->wait(rank, s);
        require(got == before * 1000 + turn, "received value");
      }
      two->wait(rank % 2, b);
      all->wait(rank, a);
      require(value == count * (count - 1) / 2 + count * turn, "sum over all");
      require(second == static_cast<int>(pair.size()), "sum over two");
    }
  });
  require(!world->failure(), "no failure in a clean exchange");
}

// Rank 1 throws in the middle while the others are at different operations.
void thrown() {
  const auto world = std::make_shared<World>(4, std::chrono::seconds(60));
  std::atomic<int> told{0};
  with_ranks(4, *world, [&](int rank) {
    const auto all = world->meet(rank, "all", first_ranks(4));
    int value = 1;
    if (rank == 1) throw std::runtime_error("planted");
    try {
      if (rank == 2) {
        all->wait(rank, all->post_recv(rank, 3, "int", &value, sizeof(value)));
      } else {
        all->wait(rank, all->post(rank, "sum", "int", &value, sum_all));
      }
    } catch (const Error& error) {
      if (std::string(error.what()).find("planted") != std::string::npos) ++told;
      throw;
    }
  });
  require(told == 3, "every peer hears of the thrown error");
  require(world->failure() && world->failure()->rank == 1, "the first failure is kept");
}

// A payload is not touched after abandon(), although the peers come later.
void abandoned() {
  const auto world = std::make_shared<World>(2, std::chrono::milliseconds(200));
  with_ranks(2, *world, [&](int rank) {
    const auto all = world->meet(rank, "all", first_ranks(2));
    auto value = std::make_unique<int>(5);
    const Ticket ticket = all->post(rank, "sum", "int", value.get(), sum_all);
    if (rank == 0) {
      all->abandon(rank, ticket);
      return;
    }
    all->wait(rank, ticket);
  });
}

void mismatched() {
  const auto world = std::make_shared<World>(2, std::chrono::seconds(60));
  with_ranks(2, *world, [&](int rank) {
    const auto all = world->meet(rank, "all", first_ranks(2));
    int value = 1;
    all->wait(rank, all->post(rank, rank == 0 ? "sum" : "gather", "int", &value, sum_all));
  });
  require(world->failure().has_value(), "a mismatch is a failure");
}

void timed_out() {
  const auto world = std::make_shared<World>(2, std::chrono::milliseconds(50));
  with_ranks(2, *world, [&](int rank) {
    const auto all = world->meet(rank, "all", first_ranks(2));
    int value = 1;
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    all->wait(rank, all->post(rank, "sum", "int", &value, sum_all));
  });
  require(world->failure() && world->failure()->rank == 0, "the waiting rank times out");
}

}  // namespace
}  // namespace pentatron::comm::threads

int main() {
  using namespace pentatron::comm::threads;
  for (int count : {1, 2, 3, 5}) exchange(count);
  for (int turn = 0; turn < 20; ++turn) {
    thrown();
    mismatched();
  }
  abandoned();
  timed_out();
  return wrong.load() == 0 ? 0 : 1;
}
