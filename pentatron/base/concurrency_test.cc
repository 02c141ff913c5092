// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "pentatron/base/log.h"
#include "pentatron/base/signals.h"
#include "pentatron/base/test_support.h"
#include "pentatron/base/thread_pool.h"
#include "pentatron/base/timer.h"

namespace pentatron {
namespace {

using std::chrono::milliseconds;

TEST(BaseThreadPool, ResultsAndExceptionsComeThroughFutures) {
  ThreadPool pool(2);
  EXPECT_EQ(pool.num_threads(), 2U);
  auto sum = pool.submit([] { return 3 + 4; });
  auto owned = pool.submit([p = std::make_unique<int>(5)] { return *p; });
  auto failing = pool.submit([]() -> int { PENTATRON_THROW(kData, "bad {}", 1); });
  EXPECT_EQ(sum.get(), 7);
  EXPECT_EQ(owned.get(), 5);
  expect_error(ErrorKind::kData, "bad 1", [&] { failing.get(); });
  expect_error(ErrorKind::kInternal, "at least one", [] { ThreadPool none(0); });
}

TEST(BaseThreadPool, RunsEverythingBeforeItEnds) {
  std::atomic<int> count{0};
  {
    ThreadPool pool(3);
    for (int i = 0; i < 100; ++i) (void)pool.submit([&] { ++count; });
  }
  EXPECT_EQ(count, 100);
}

TEST(BaseThreadPool, ThreadsRunAtOnce) {
  ThreadPool pool(2);
  std::atomic<int> arrived{0};
  const auto meet = [&] {
    ++arrived;
    const Timer timer;
    while (arrived < 2 && timer.seconds() < 20) std::this_thread::yield();
    return arrived.load();
  };
  auto a = pool.submit(meet);
  auto b = pool.submit(meet);
  EXPECT_EQ(a.get(), 2);
  EXPECT_EQ(b.get(), 2);
}

TEST(BaseThreadPool, ParallelForRunsEachIndexOnce) {
  ThreadPool pool(3);
  for (const std::size_t count : {0U, 1U, 2U, 1000U}) {
    std::vector<std::atomic<int>> hits(count);
    pool.parallel_for(count, [&](std::size_t i) { ++hits[i]; });
    for (const auto& hit : hits) ASSERT_EQ(hit, 1);
  }
}

TEST(BaseThreadPool, ParallelForMayNest) {
  ThreadPool pool(2);
  std::atomic<int> count{0};
  pool.parallel_for(8, [&](std::size_t) { pool.parallel_for(8, [&](std::size_t) { ++count; }); });
  EXPECT_EQ(count, 64);
}

TEST(BaseThreadPool, LowestFailingIndexIsRethrownAfterAllRan) {
  ThreadPool pool(3);
  std::atomic<int> count{0};
  try {
    pool.parallel_for(50, [&](std::size_t i) {
      ++count;
      if (i % 10 == 7) throw std::runtime_error(std::to_string(i));
    });
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "7");
  }
  EXPECT_EQ(count, 50);
}

TEST(BaseThreadPool, WorkersCarryTheMakersLabel) {
  log::set_thread_label("rank 5");
  ThreadPool pool(1);
  log::set_thread_label("");
  EXPECT_EQ(pool.submit([] { return log::thread_label(); }).get(), "rank 5");
}

TEST(BaseTimer, MeasuresAndRestarts) {
  Timer timer;
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_GE(timer.seconds(), 0.02);
  EXPECT_LT(timer.seconds(), 20);
  timer.restart();
  EXPECT_LT(timer.seconds(), 0.02);
}

TEST(BaseTimer, NamedTimersSumAndReset) {
  Timers timers(1);
  timers.start("step");
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_GE(timers.elapsed_seconds("step", false), 0.02);
  timers.stop("step");
  std::this_thread::sleep_for(milliseconds(50));
  timers.start("step");
  std::this_thread::sleep_for(milliseconds(20));
  timers.stop("step");
  const double sum = timers.elapsed_seconds("step");
  EXPECT_GE(sum, 0.04);
  EXPECT_EQ(timers.elapsed_seconds("step"), 0);
  // Finer than the chosen level: nothing is measured or listed.
  timers.start("forward", 1);
  timers.start("detail", 2);
  std::this_thread::sleep_for(milliseconds(2));
  timers.stop("detail");
  timers.stop("forward");
  EXPECT_EQ(timers.elapsed_seconds("detail"), 0);
  EXPECT_GT(timers.elapsed_seconds("forward"), 0);
  EXPECT_EQ(timers.elapsed_seconds("unknown"), 0);
  EXPECT_EQ(timers.names(), (std::vector<std::string>{"step", "forward"}));
}

TEST(BaseTimer, MisuseIsRefused) {
  Timers timers(0);
  expect_error(ErrorKind::kInternal, "not started", [&] { timers.stop("a"); });
  timers.start("a");
  expect_error(ErrorKind::kInternal, "started twice", [&] { timers.start("a"); });
  timers.stop("a");
  expect_error(ErrorKind::kInternal, "not started", [&] { timers.stop("a"); });
  expect_error(ErrorKind::kInternal, "has level 0, not 1", [&] { timers.start("a", 1); });
  expect_error(ErrorKind::kInternal, "level 3", [&] { timers.start("b", 3); });
  expect_error(ErrorKind::kInternal, "level 3", [] { Timers bad(3); });
}

TEST(BaseTimer, ScopesTimeTheirBlockAtTheirLevel) {
  Timers timers(1);
  int barriers = 0;
  int waits = 0;
  timers.set_barrier([&] { ++barriers; });
  timers.set_synchronize([&] { ++waits; });
  for (int level = 0; level <= 2; ++level) {
    constexpr std::array kNames{"a", "b", "c"};
    const TimedScope scope(&timers, kNames.at(static_cast<std::size_t>(level)), level);
    std::this_thread::sleep_for(milliseconds(5));
  }
  { const TimedScope none(nullptr, "d", 0); }
  int meetings = 0;
  const auto meet = [&] { ++meetings; };
  { const TimedScope some(&timers, "b", 1, meet); }
  EXPECT_EQ(barriers, 1);  // of level 1 only
  EXPECT_EQ(meetings, 1);  // in place of the barrier
  EXPECT_EQ(waits, 6);     // before and after what is on
  EXPECT_EQ(timers.names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_GE(timers.elapsed_seconds("a"), 0.005);
  EXPECT_GE(timers.elapsed_seconds("b"), 0.005);
  EXPECT_EQ(timers.elapsed_seconds("c"), 0);
  // Nobody meets where there is no barrier, or where the timer is off.
  timers.set_barrier({});
  { const TimedScope some(&timers, "b", 1, meet); }
  Timers off(0);
  off.set_barrier([&] { ++barriers; });
  { const TimedScope some(&off, "b", 1, meet); }
  EXPECT_EQ(meetings, 1);
  EXPECT_EQ(barriers, 1);
}

std::atomic<int> former_handler_calls{0};
void former_handler(int) { former_handler_calls = former_handler_calls + 1; }

TEST(BaseSignals, SetsAFlagAndRestoresTheFormerHandler) {
  struct sigaction mine {};
  struct sigaction before {};
  mine.sa_handler = &former_handler;
  ASSERT_EQ(::sigaction(SIGUSR1, &mine, &before), 0);
  {
    const SignalFlag flag({SIGTERM, SIGUSR1});
    EXPECT_FALSE(flag.triggered());
    ::raise(SIGUSR1);
    EXPECT_TRUE(flag.triggered());
    EXPECT_EQ(flag.signal_number(), SIGUSR1);
    ::raise(SIGTERM);
    EXPECT_EQ(flag.signal_number(), SIGTERM);
    EXPECT_EQ(former_handler_calls, 0);
  }
  ::raise(SIGUSR1);
  EXPECT_EQ(former_handler_calls, 1);
  {
    const SignalFlag flag({SIGUSR1});
    EXPECT_FALSE(flag.triggered()) << "an old arrival must not count";
  }
  ASSERT_EQ(::sigaction(SIGUSR1, &before, nullptr), 0);
}

TEST(BaseSignals, UncatchableSignalsAreRefusedAndUndone) {
  struct sigaction before {};
  ASSERT_EQ(::sigaction(SIGUSR2, nullptr, &before), 0);
  expect_error(ErrorKind::kConfig, "signal 9", [] { SignalFlag flag({SIGUSR2, SIGKILL}); });
  expect_error(ErrorKind::kConfig, "signal 0", [] { SignalFlag flag({0}); });
  expect_error(ErrorKind::kConfig, "signal 1000", [] { SignalFlag flag({1000}); });
  struct sigaction after {};
  ASSERT_EQ(::sigaction(SIGUSR2, nullptr, &after), 0);
  EXPECT_EQ(after.sa_handler, before.sa_handler);
}

TEST(BaseSignals, SystemCallsGoOn) {
  const SignalFlag flag({SIGUSR1});
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pthread_t self = ::pthread_self();
  std::thread other([&] {
    std::this_thread::sleep_for(milliseconds(50));
    ::pthread_kill(self, SIGUSR1);
    std::this_thread::sleep_for(milliseconds(50));
    EXPECT_EQ(::write(ends[1], "x", 1), 1);
  });
  char byte = 0;
  EXPECT_EQ(::read(ends[0], &byte, 1), 1);
  other.join();
  EXPECT_TRUE(flag.triggered());
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
}  // namespace pentatron
