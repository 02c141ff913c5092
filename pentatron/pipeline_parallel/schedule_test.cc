// SPDX-License-Identifier: Apache-2.0
#include "pentatron/pipeline_parallel/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "pentatron/base/error.h"
#include "pentatron/pipeline_parallel/simulate.h"
#include "pentatron/pipeline_parallel/zero_bubble.h"

namespace pentatron::pipeline_parallel {
namespace {

constexpr int kMaxStages = 8;
constexpr int kMaxMicroBatches = 16;

// Calls body for every shape up to 8 stages and 16 micro-batches.
template <typename Body>
void for_each_shape(const Body& body) {
  for (int p = 1; p <= kMaxStages; ++p) {
    for (int m = 1; m <= kMaxMicroBatches; ++m) {
      SCOPED_TRACE(testing::Message() << p << " stages, " << m << " micro-batches");
      body(ScheduleShape{p, m}, p, m);
    }
  }
}

std::vector<int> micro_batches_of(const ActionList& list, ActionKind kind) {
  std::vector<int> order;
  for (const Action& action : list) {
    if (action.kind == kind) order.push_back(action.micro_batch);
  }
  return order;
}

std::vector<int> ascending(int count) {
  std::vector<int> order(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) order[static_cast<std::size_t>(i)] = i;
  return order;
}

std::size_t index_of(const ActionList& list, ActionKind kind, int micro_batch) {
  const auto at = std::find(list.begin(), list.end(), Action{kind, micro_batch, 0});
  EXPECT_NE(at, list.end()) << to_string(kind) << " " << micro_batch;
  return static_cast<std::size_t>(at - list.begin());
}

TEST(Schedule, OneForwardOneBackwardIsSound) {
  for_each_shape([](const ScheduleShape& shape, int p, int m) {
    const auto lists = one_forward_one_backward(shape);
    ASSERT_EQ(lists.size(), static_cast<std::size_t>(p));
    const SimulationResult result = simulate(lists, shape);
    EXPECT_EQ(result.problem, "");
    EXPECT_FALSE(result.deadlock);
    for (int r = 0; r < p; ++r) {
      const ActionList& list = lists[static_cast<std::size_t>(r)];
      EXPECT_EQ(micro_batches_of(list, ActionKind::kForward), ascending(m));
      EXPECT_EQ(micro_batches_of(list, ActionKind::kBackward), ascending(m));
      EXPECT_EQ(micro_batches_of(list, ActionKind::kSendForward), ascending(r + 1 < p ? m : 0));
      EXPECT_EQ(micro_batches_of(list, ActionKind::kRecvBackward), ascending(r + 1 < p ? m : 0));
      EXPECT_EQ(micro_batches_of(list, ActionKind::kRecvForward), ascending(r > 0 ? m : 0));
      EXPECT_EQ(micro_batches_of(list, ActionKind::kSendBackward), ascending(r > 0 ? m : 0));
      EXPECT_LE(result.peak_in_flight[static_cast<std::size_t>(r)], p - r);
      EXPECT_DOUBLE_EQ(result.busy_time[static_cast<std::size_t>(r)], 3.0 * m);
    }
  });
}

// (p - 1) / (m + p - 1): each stage idles while the first micro-batch comes to it and the last
// one's gradient leaves it.
TEST(Schedule, BubbleShareIsTheClosedFormula) {
  for_each_shape([](const ScheduleShape& shape, int p, int m) {
    const SimulationResult result = simulate(one_forward_one_backward(shape), shape);
    EXPECT_NEAR(result.bubble_share, (p - 1.0) / (m + p - 1.0), 1e-12);
    EXPECT_DOUBLE_EQ(result.total_time, 3.0 * (m + p - 1));
  });
}

// All forwards, then all backwards: the bubble of 1F1B at the memory of all micro-batches.
TEST(Schedule, GPipe) {
  for_each_shape([](ScheduleShape shape, int p, int m) {
    const SimulationCosts costs{.forward = 1, .backward = 1.5, .backward_weight = 0.75};
    const SimulationResult result = simulate(gpipe(shape), shape, costs);
    EXPECT_EQ(result.problem, "");
    EXPECT_NEAR(result.bubble_share, (p - 1.0) / (m + p - 1.0), 1e-12);
    EXPECT_EQ(result.peak_in_flight, std::vector<int>(static_cast<std::size_t>(p), m));
    EXPECT_EQ(result.peak_activations, result.peak_in_flight);
    for (const ActionList& list : gpipe(shape)) {
      EXPECT_EQ(micro_batches_of(list, ActionKind::kForward), ascending(m));
      EXPECT_EQ(micro_batches_of(list, ActionKind::kBackward), ascending(m));
    }
    for (const int chunks : {2, 3}) {
      for (const int group : {1, p, p + 1}) {
        const ScheduleShape several{p, m, chunks, group};
        const SimulationResult deep = simulate(gpipe(several), several, costs);
        EXPECT_EQ(deep.problem, "") << chunks << " chunks in groups of " << group;
        EXPECT_EQ(deep.peak_activations, std::vector<int>(static_cast<std::size_t>(p), m * chunks));
      }
    }
  });
}

TEST(Schedule, ForwardOnly) {
  for_each_shape([](const ScheduleShape& shape, int p, int m) {
    const auto lists = forward_only(shape);
    const SimulationResult result = simulate(lists, shape);
    EXPECT_EQ(result.problem, "");
    EXPECT_DOUBLE_EQ(result.total_time, m + p - 1.0);
    for (const ActionList& list : lists) {
      EXPECT_TRUE(micro_batches_of(list, ActionKind::kBackward).empty());
      EXPECT_TRUE(micro_batches_of(list, ActionKind::kSendBackward).empty());
    }
  });
}

TEST(Schedule, OneStageSendsNothing) {
  const auto lists = one_forward_one_backward({1, 2});
  const ActionList expected = {{ActionKind::kForward, 0, 0},
                               {ActionKind::kBackward, 0, 0},
                               {ActionKind::kForward, 1, 0},
                               {ActionKind::kBackward, 1, 0}};
  EXPECT_EQ(lists[0], expected);
}

TEST(Schedule, SendsCostTime) {
  const ScheduleShape shape{2, 1};
  const SimulationResult result =
      simulate(one_forward_one_backward(shape), shape,
               {.forward = 1, .backward = 1, .backward_weight = 1, .send = 0.25});
  EXPECT_DOUBLE_EQ(result.total_time, 1 + 0.25 + 1 + 2 + 0.25 + 2);
}

// 2 to 4 ranks, 2 to 3 chunks, groups as large as the ranks and larger, whole groups and a rest.
template <typename Body>
void for_each_interleaved(const Body& body) {
  for (int p = 1; p <= 4; ++p) {
    for (int chunks = 1; chunks <= 3; ++chunks) {
      for (const int group : {p, p + 1, 2 * p}) {
        for (int m = 1; m <= 4 * group; ++m) {
          if (m % group != 0 && m % group < p) continue;
          SCOPED_TRACE(testing::Message() << p << " ranks, " << chunks << " chunks, groups of "
                                          << group << ", " << m << " micro-batches");
          body(ScheduleShape{p, m, chunks, group}, p, chunks, m);
        }
      }
    }
  }
}

TEST(Schedule, InterleavedIsSound) {
  for_each_interleaved([](const ScheduleShape& shape, int p, int chunks, int m) {
    const auto lists = interleaved_one_forward_one_backward(shape);
    const SimulationResult result = simulate(lists, shape);
    EXPECT_EQ(result.problem, "");
    for (int r = 0; r < p; ++r) {
      EXPECT_DOUBLE_EQ(result.busy_time[static_cast<std::size_t>(r)], 3.0 * m * chunks);
      // Warm-up and the forward of the steady state that comes before its backward.
      const int warmup = 2 * (p - 1 - r) + (chunks - 1) * shape.group_size;
      EXPECT_LE(result.peak_in_flight[static_cast<std::size_t>(r)], warmup + 1);
      for (int chunk = 0; chunk < chunks; ++chunk) {
        for (const ActionKind kind : {ActionKind::kForward, ActionKind::kBackward}) {
          std::vector<int> order;
          for (const Action& action : lists[static_cast<std::size_t>(r)]) {
            if (action.kind == kind && action.chunk == chunk) order.push_back(action.micro_batch);
          }
          EXPECT_EQ(order, ascending(m));
        }
      }
    }
    EXPECT_EQ(simulate(forward_only(shape), shape).problem, "");
  });
}

// The bubble shrinks by the number of chunks: each is a chunk's share of a micro-batch's time
// (Narayanan et al., section 2.2).
TEST(Schedule, InterleavedBubbleShareIsTheClosedFormula) {
  for (const int p : {2, 3, 4}) {
    for (const int chunks : {1, 2, 4}) {
      const int m = 4 * p;
      const ScheduleShape shape{p, m, chunks};
      const SimulationResult result = simulate(interleaved_one_forward_one_backward(shape), shape);
      EXPECT_NEAR(result.total_time, 3.0 * (m * chunks + p - 1), 1e-9)
          << p << " ranks, " << chunks << " chunks";
    }
  }
}

TEST(Schedule, OneChunkOfInterleavedComputesInAnOrderOfItsOwn) {
  // With one chunk the warm-up is twice as long less one, and all else is 1F1B.
  const ScheduleShape shape{3, 6};
  const auto lists = interleaved_one_forward_one_backward(shape);
  EXPECT_EQ(simulate(lists, shape).peak_in_flight, (std::vector<int>{5, 3, 1}));
}

TEST(Schedule, InterleavedRefusesGroupsThatDoNotFit) {
  EXPECT_THROW((void)interleaved_one_forward_one_backward({4, 8, 2, 3}), Error);
  EXPECT_THROW((void)interleaved_one_forward_one_backward({4, 6, 2}), Error);
  EXPECT_THROW((void)interleaved_one_forward_one_backward({4, 8, 0}), Error);
  EXPECT_THROW((void)one_forward_one_backward({4, 8, 2}), Error);
  EXPECT_NO_THROW((void)interleaved_one_forward_one_backward({4, 9, 2, 5}));
}

// Two ranks: both the activations for the next chunk and the gradients for the previous one go from
// the last rank to the first. They do not stand in one line, and within a direction the order of
// sending is that of receiving.
TEST(Schedule, SimulatorKeepsMessagesInLine) {
  const ScheduleShape shape{2, 2, 2};
  auto lists = interleaved_one_forward_one_backward(shape);
  ASSERT_EQ(simulate(lists, shape).problem, "");
  ActionList& last = lists[1];
  const auto first_send =
      std::find(last.begin(), last.end(), Action{ActionKind::kSendForward, 0, 0});
  const auto second_send = std::find(last.begin(), last.end(), Action{ActionKind::kForward, 1, 0});
  // The wrap-around send of micro-batch 0 behind that of micro-batch 1.
  std::rotate(first_send, first_send + 1, second_send + 2);
  EXPECT_NE(simulate(lists, shape).problem.find("comes instead"), std::string::npos)
      << simulate(lists, shape).problem;
}

// Every single action is load-bearing: without it, or with a second copy of it, the lists are
// refused.
TEST(Schedule, SimulatorCatchesDroppedAndDoubledActions) {
  for (const auto& make :
       {one_forward_one_backward, zero_bubble_h1, interleaved_one_forward_one_backward}) {
    for (ScheduleShape shape : {ScheduleShape{2, 3}, ScheduleShape{4, 6}, ScheduleShape{3, 1}}) {
      if (make == interleaved_one_forward_one_backward) shape = {2, 4, 2};
      const auto sound = make(shape);
      for (std::size_t r = 0; r < sound.size(); ++r) {
        for (std::size_t i = 0; i < sound[r].size(); ++i) {
          SCOPED_TRACE(testing::Message()
                       << "rank " << r << " action " << i << " " << to_string(sound[r][i].kind));
          auto dropped = sound;
          dropped[r].erase(dropped[r].begin() + static_cast<std::ptrdiff_t>(i));
          EXPECT_NE(simulate(dropped, shape).problem, "");
          auto doubled = sound;
          doubled[r].insert(doubled[r].begin() + static_cast<std::ptrdiff_t>(i), sound[r][i]);
          EXPECT_NE(simulate(doubled, shape).problem, "");
        }
      }
    }
  }
}

TEST(Schedule, SimulatorCatchesSwappedOrder) {
  const ScheduleShape shape{3, 4};
  const auto sound = one_forward_one_backward(shape);
  // Sends of two micro-batches exchanged: the receiver gets another one than it asks for.
  auto lists = sound;
  std::swap(lists[0][index_of(lists[0], ActionKind::kSendForward, 0)],
            lists[0][index_of(lists[0], ActionKind::kSendForward, 1)]);
  SimulationResult result = simulate(lists, shape);
  EXPECT_NE(result.problem.find("rank 0: send-forward of micro-batch 1"), std::string::npos)
      << result.problem;
  lists = sound;
  std::swap(lists[1][index_of(lists[1], ActionKind::kRecvForward, 1)],
            lists[1][index_of(lists[1], ActionKind::kRecvForward, 0)]);
  result = simulate(lists, shape);
  EXPECT_NE(result.problem.find("micro-batch 0 (chunk 0) comes instead"), std::string::npos)
      << result.problem;
  // Backward before its gradient came.
  lists = sound;
  std::swap(lists[0][index_of(lists[0], ActionKind::kBackward, 0)],
            lists[0][index_of(lists[0], ActionKind::kRecvBackward, 0)]);
  EXPECT_NE(simulate(lists, shape).problem, "");
}

TEST(Schedule, SimulatorFindsDeadlock) {
  const ScheduleShape shape{2, 2};
  auto lists = one_forward_one_backward(shape);
  // Stage 0 waits for a gradient before it sends what the gradient needs.
  ActionList& first = lists[0];
  const std::size_t send = index_of(first, ActionKind::kSendForward, 0);
  const std::size_t recv = index_of(first, ActionKind::kRecvBackward, 0);
  std::rotate(first.begin() + static_cast<std::ptrdiff_t>(send),
              first.begin() + static_cast<std::ptrdiff_t>(recv),
              first.begin() + static_cast<std::ptrdiff_t>(recv) + 1);
  const SimulationResult result = simulate(lists, shape);
  EXPECT_TRUE(result.deadlock);
  EXPECT_NE(result.problem.find("deadlock: rank 0 waits in recv-backward of micro-batch 0"),
            std::string::npos)
      << result.problem;
}

TEST(Schedule, SimulatorRefusesUnknownNumbers) {
  const ScheduleShape shape{2, 1};
  EXPECT_NE(simulate({{}}, shape).problem, "");
  for (const Action bad : {Action{ActionKind::kForward, 1, 0}, Action{ActionKind::kForward, -1, 0},
                           Action{ActionKind::kForward, 0, 1}}) {
    auto lists = one_forward_one_backward(shape);
    lists[0].insert(lists[0].begin(), bad);
    EXPECT_NE(simulate(lists, shape).problem.find("no such micro-batch"), std::string::npos);
  }
  EXPECT_THROW((void)one_forward_one_backward({0, 1}), Error);
  EXPECT_THROW((void)forward_only({1, 0}), Error);
}

TEST(Simulate, RefusesEdgesOutsideTheChain) {
  auto lists = one_forward_one_backward({2, 1});
  for (Action& action : lists[0]) {
    if (action.kind == ActionKind::kSendForward) action.edge = 1;
  }
  EXPECT_NE(simulate(lists, {2, 1}).problem.find("no edge 1"), std::string::npos);
}

// 0 feeds 1 and 2, both feed 3; stage 3 numbers its incoming edges the other way round.
const StageGraph kDiamond = {{{}, {1, 2}}, {{0}, {3}}, {{0}, {3}}, {{2, 1}, {}}};

// All forwards, then all backwards.
std::vector<ActionList> lists_for(const StageGraph& graph, int num_micro_batches) {
  using K = ActionKind;
  std::vector<ActionList> lists;
  for (const StageEdges& peers : graph) {
    ActionList list;
    const auto put = [&list](K kind, int micro_batch, std::size_t num_edges) {
      for (std::size_t e = 0; e < num_edges; ++e) {
        list.push_back({kind, micro_batch, 0, static_cast<int>(e)});
      }
    };
    for (int i = 0; i < num_micro_batches; ++i) {
      put(K::kRecvForward, i, peers.previous.size());
      list.push_back({K::kForward, i});
      put(K::kSendForward, i, peers.next.size());
    }
    for (int i = 0; i < num_micro_batches; ++i) {
      put(K::kRecvBackward, i, peers.next.size());
      list.push_back({K::kBackward, i});
      put(K::kSendBackward, i, peers.previous.size());
    }
    lists.push_back(std::move(list));
  }
  return lists;
}

TEST(Simulate, PlaysAGraphOfStages) {
  const SimulationCosts costs{.forward = 1, .backward = 1, .backward_weight = 1, .send = 0.25};
  const SimulationResult result = simulate(lists_for(kDiamond, 1), {4, 1}, costs, kDiamond);
  EXPECT_EQ(result.problem, "");
  // Three stages deep, whatever its width.
  EXPECT_DOUBLE_EQ(result.total_time, 3 * (1 + 2) + 4 * 0.25);
  EXPECT_DOUBLE_EQ(result.bubble_share, 1 - 4 * 3 / (4 * result.total_time));
  EXPECT_EQ(simulate(lists_for(kDiamond, 3), {4, 3}, costs, kDiamond).peak_in_flight,
            (std::vector<int>{3, 3, 3, 3}));
  // A chain that is spelt out is the chain.
  const ScheduleShape shape{3, 5};
  const auto lists = one_forward_one_backward(shape);
  EXPECT_EQ(simulate(lists, shape, costs, {{{}, {1}}, {{0}, {2}}, {{1}, {}}}).total_time,
            simulate(lists, shape, costs).total_time);
}

TEST(Simulate, EveryActionOfAGraphIsLoadBearing) {
  const ScheduleShape shape{4, 2};
  const auto sound = lists_for(kDiamond, 2);
  ASSERT_EQ(simulate(sound, shape, {}, kDiamond).problem, "");
  for (std::size_t r = 0; r < sound.size(); ++r) {
    for (std::size_t i = 0; i < sound[r].size(); ++i) {
      SCOPED_TRACE(testing::Message() << "stage " << r << " action " << i);
      const auto at = static_cast<std::ptrdiff_t>(i);
      auto dropped = sound;
      dropped[r].erase(dropped[r].begin() + at);
      EXPECT_NE(simulate(dropped, shape, {}, kDiamond).problem, "");
      auto doubled = sound;
      doubled[r].insert(doubled[r].begin() + at, sound[r][i]);
      EXPECT_NE(simulate(doubled, shape, {}, kDiamond).problem, "");
      auto elsewhere = sound;
      elsewhere[r][i].edge += 2;
      EXPECT_NE(simulate(elsewhere, shape, {}, kDiamond).problem.find("no edge"),
                std::string::npos);
    }
  }
  // Stage 3 waits for both of its inputs.
  auto early = sound;
  std::swap(early[3][1], early[3][2]);
  EXPECT_NE(simulate(early, shape, {}, kDiamond).problem.find("its input was not received"),
            std::string::npos);
}

TEST(Simulate, RefusesGraphsThatAreNone) {
  const auto problem = [](const StageGraph& graph) {
    return simulate(lists_for(graph, 1), {3, 1}, {}, graph).problem;
  };
  EXPECT_EQ(problem(chain_graph(3)), "");
  EXPECT_NE(problem(chain_graph(2)), "");
  EXPECT_NE(problem({{{2}, {1}}, {{0}, {2}}, {{1}, {0}}}).find("cycle"), std::string::npos);
  const std::string one_edge = "do not share exactly one edge";
  EXPECT_NE(problem({{{}, {1}}, {{}, {2}}, {{1}, {}}}).find(one_edge), std::string::npos);
  EXPECT_NE(problem({{{}, {1, 1}}, {{0, 0}, {2}}, {{1}, {}}}).find(one_edge), std::string::npos);
  EXPECT_NE(problem({{{}, {1}}, {{0}, {3}}, {{1}, {}}}).find(one_edge), std::string::npos);
  EXPECT_NE(problem({{{}, {0}}, {{}, {2}}, {{1}, {}}}).find(one_edge), std::string::npos);
}

}  // namespace
}  // namespace pentatron::pipeline_parallel
