// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tensor/weight_grad_queue.h"

#include <gtest/gtest.h>

#include <string>

#include "pentatron/base/error.h"

namespace pentatron {
namespace {

TEST(WeightGradQueue, PostponesAndDrainsInOrder) {
  WeightGradQueue queue;
  std::vector<int> ran, done;
  const auto listening = queue.on_unit_done([&](int unit) { done.push_back(unit); });
  queue.put({.unit = 0}, [&] { ran.push_back(100); });
  EXPECT_EQ(ran, (std::vector<int>{100}));
  EXPECT_TRUE(done.empty());
  queue.set_postpone(true);
  for (int i = 0; i < 4; ++i) queue.put({.unit = i % 2}, [&ran, i] { ran.push_back(i); });
  EXPECT_EQ(queue.pending(), 4u);
  EXPECT_EQ(queue.pending_of(1), 2u);
  queue.drain();
  EXPECT_EQ(ran, (std::vector<int>{100, 0, 1, 2, 3}));
  EXPECT_EQ(done, (std::vector<int>{0, 1}));
  EXPECT_THROW(queue.put({.unit = 0}, nullptr), Error);
}

TEST(WeightGradQueue, TellsEveryListenerInOrderWhileItListens) {
  WeightGradQueue queue;
  queue.set_postpone(true);
  std::string heard;
  const auto first = queue.on_unit_done([&](int unit) { heard += "a" + std::to_string(unit); });
  auto second = queue.on_unit_done([&](int unit) { heard += "b" + std::to_string(unit); });
  queue.put({.unit = 3}, [] {});
  queue.drain();
  EXPECT_EQ(heard, "a3b3");
  second.reset();
  queue.put({.unit = 4}, [] {});
  queue.drain();
  EXPECT_EQ(heard, "a3b3a4");
  EXPECT_THROW((void)queue.on_unit_done(nullptr), Error);
}

TEST(WeightGradQueue, RunsKeysInTheOrderThatIsAsked) {
  WeightGradQueue queue;
  queue.set_postpone(true);
  std::string ran;
  for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
    for (int unit = 3; unit >= 0; --unit) {
      const int chunk = unit / 2;  // units 0 and 1 are in the first chunk
      for (const char* work : {"a", "b"}) {
        queue.put({.unit = unit, .micro_batch = micro_batch, .chunk = chunk}, [=, &ran] {
          ran += std::to_string(micro_batch) + std::to_string(unit) + work + " ";
        });
      }
    }
  }
  queue.drain_micro_batch(1, /*chunk=*/1);
  EXPECT_EQ(ran, "13a 13b 12a 12b ");
  ran.clear();
  queue.drain({.unit = 0, .micro_batch = 1, .chunk = 0});
  EXPECT_EQ(ran, "10a 10b ");
  ran.clear();
  queue.drain({.unit = 0, .micro_batch = 1, .chunk = 1});  // no such key
  queue.drain_micro_batch(0);
  EXPECT_EQ(ran, "01a 01b 00a 00b ");
  ran.clear();
  queue.drain();
  EXPECT_EQ(ran, "03a 03b 02a 02b 11a 11b ") << "the oldest first";
  EXPECT_EQ(queue.pending(), 0u);
}

// A unit whose work of an early micro-batch ran while the last one's backward is still to come is
// not done, and one of which an early micro-batch is still left is not either.
TEST(WeightGradQueue, AUnitIsDoneOnceAStep) {
  WeightGradQueue queue;
  queue.set_postpone(true);
  std::vector<int> done;
  const auto listening = queue.on_unit_done([&](int unit) { done.push_back(unit); });
  for (int step = 0; step < 2; ++step) {
    done.clear();
    queue.set_last_micro_batch(2);
    queue.put({.unit = 5, .micro_batch = 0}, [] {});
    queue.drain();
    EXPECT_TRUE(done.empty());
    queue.put({.unit = 5, .micro_batch = 1}, [] {});
    queue.put({.unit = 5, .micro_batch = 2}, [] {});
    queue.put({.unit = 6, .micro_batch = 2}, [] {});
    queue.drain_micro_batch(2);
    EXPECT_EQ(done, (std::vector<int>{6}));
    queue.drain_micro_batch(1);
    EXPECT_EQ(done, (std::vector<int>{6, 5}));
  }
}

}  // namespace
}  // namespace pentatron
