// SPDX-License-Identifier: Apache-2.0
#include "pentatron/pipeline_parallel/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "pentatron/base/error.h"

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

TEST(Schedule, SplitWeightKeepsMemoryAndShrinksTheBubble) {
  for_each_shape([](const ScheduleShape& shape, int p, int m) {
    const auto lists = one_forward_one_backward_split_weight(shape);
    const SimulationResult result = simulate(lists, shape);
    EXPECT_EQ(result.problem, "");
    // Forward, backward for input and for weight cost 1 each: one unit of bubble a stage, and more
    // only where the micro-batches do not fill the pipeline.
    EXPECT_DOUBLE_EQ(result.total_time, 3.0 * m + std::max(p - 1, 2 * p - 1 - m));
    for (int r = 0; r < p; ++r) {
      const ActionList& list = lists[static_cast<std::size_t>(r)];
      EXPECT_LE(result.peak_in_flight[static_cast<std::size_t>(r)], p - r);
      EXPECT_DOUBLE_EQ(result.busy_time[static_cast<std::size_t>(r)], 3.0 * m);
      EXPECT_EQ(micro_batches_of(list, ActionKind::kBackwardWeight), ascending(m));
      // Activations live from the forward to the backward for weight: nowhere more than on the
      // first stage.
      int alive = 0;
      for (const Action& action : list) {
        alive += action.kind == ActionKind::kForward ? 1 : 0;
        alive -= action.kind == ActionKind::kBackwardWeight ? 1 : 0;
        EXPECT_LE(alive, p + 1);
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
      simulate(one_forward_one_backward(shape), shape, {.forward = 1, .backward = 2, .send = 0.25});
  EXPECT_DOUBLE_EQ(result.total_time, 1 + 0.25 + 1 + 2 + 0.25 + 2);
}

// Every single action is load-bearing: without it, or with a second copy of it, the lists are
// refused.
TEST(Schedule, SimulatorCatchesDroppedAndDoubledActions) {
  for (const auto& make : {one_forward_one_backward, one_forward_one_backward_split_weight}) {
    for (const ScheduleShape shape :
         {ScheduleShape{2, 3}, ScheduleShape{4, 6}, ScheduleShape{3, 1}}) {
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
  EXPECT_NE(result.problem.find("stage 0: send-forward of micro-batch 1"), std::string::npos)
      << result.problem;
  lists = sound;
  std::swap(lists[1][index_of(lists[1], ActionKind::kRecvForward, 1)],
            lists[1][index_of(lists[1], ActionKind::kRecvForward, 0)]);
  result = simulate(lists, shape);
  EXPECT_NE(result.problem.find("micro-batch 0 comes instead"), std::string::npos)
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
  EXPECT_NE(result.problem.find("deadlock: stage 0 waits in recv-backward of micro-batch 0"),
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
  for (const StagePeers& peers : graph) {
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
  const SimulationCosts costs{.forward = 1, .backward = 2, .send = 0.25};
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
