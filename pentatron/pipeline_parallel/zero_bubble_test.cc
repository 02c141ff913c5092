// SPDX-License-Identifier: Apache-2.0
#include "pentatron/pipeline_parallel/zero_bubble.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <string>

#include "pentatron/base/error.h"

namespace pentatron::pipeline_parallel {
namespace {

const std::vector<SimulationCosts> kCosts = {
    {.forward = 1, .backward = 1, .backward_weight = 1},
    {.forward = 1, .backward = 1.2, .backward_weight = 0.8},
    {.forward = 1, .backward = 1.5, .backward_weight = 0.7},
    {.forward = 1, .backward = 1.1, .backward_weight = 1.3},
    {.forward = 2, .backward = 2.5, .backward_weight = 1.75, .send = 0.25},
    {.forward = 1, .backward = 1, .backward_weight = 1, .send = 0.5}};

std::string name_of(const ScheduleShape& shape, const SimulationCosts& costs) {
  return testing::PrintToString(std::vector<double>{
      static_cast<double>(shape.num_ranks), static_cast<double>(shape.num_micro_batches),
      costs.forward, costs.backward, costs.backward_weight, costs.send});
}

std::vector<int> micro_batches_of(const ActionList& list, ActionKind kind) {
  std::vector<int> order;
  for (const Action& action : list) {
    if (action.kind == kind) order.push_back(action.micro_batch);
  }
  return order;
}

// Sound, all work done, and each kind of it in the order in which 1F1B sums gradients.
SimulationResult played(const std::vector<ActionList>& lists, const ScheduleShape& shape,
                        const SimulationCosts& costs) {
  const SimulationResult result = simulate(lists, shape, costs);
  EXPECT_EQ(result.problem, "");
  std::vector<int> ascending;
  for (int i = 0; i < shape.num_micro_batches; ++i) ascending.push_back(i);
  for (const ActionList& list : lists) {
    for (const ActionKind kind :
         {ActionKind::kForward, ActionKind::kBackward, ActionKind::kBackwardWeight}) {
      EXPECT_EQ(micro_batches_of(list, kind), ascending) << to_string(kind);
    }
  }
  return result;
}

double work(const ScheduleShape& shape, const SimulationCosts& costs) {
  return shape.num_micro_batches * (costs.forward + costs.backward + costs.backward_weight);
}

// Qi et al., section 2.3 (table 2): the bubble that is left of 1F1B's (p - 1) (F + B + W).
TEST(ZeroBubble, H1LeavesTheBubbleOfTheFormula) {
  for (SimulationCosts costs : kCosts) {
    if (costs.backward_weight > costs.backward) continue;
    costs.send = 0;
    for (const int p : {1, 2, 3, 4, 8}) {
      for (const int m : {2 * p, 3 * p + 1, 8 * p}) {
        const ScheduleShape shape{p, m};
        SCOPED_TRACE(name_of(shape, costs));
        const double bubble = (p - 1) * (costs.forward + costs.backward - costs.backward_weight);
        EXPECT_NEAR(played(zero_bubble_h1(shape), shape, costs).total_time,
                    work(shape, costs) + bubble, 1e-9);
        const double plain = (p - 1) * (costs.forward + costs.backward + costs.backward_weight);
        EXPECT_NEAR(simulate(one_forward_one_backward(shape), shape, costs).total_time,
                    work(shape, costs) + plain, 1e-9);
      }
    }
  }
}

TEST(ZeroBubble, H1WithFewMicroBatches) {
  for (int p = 1; p <= 8; ++p) {
    for (int m = 1; m <= 16; ++m) {
      const ScheduleShape shape{p, m};
      SCOPED_TRACE(name_of(shape, {}));
      // All three cost 1: more than the formula only where the micro-batches do not fill the
      // pipeline.
      EXPECT_DOUBLE_EQ(played(zero_bubble_h1(shape), shape, {}).total_time,
                       3.0 * m + std::max(p - 1, 2 * p - 1 - m));
    }
  }
}

// No rank keeps more than the first rank of 1F1B, and the order of forwards and backwards is that
// of 1F1B.
TEST(ZeroBubble, H1KeepsTheMemoryOf1F1B) {
  for (const int p : {1, 2, 4, 8}) {
    for (const int m : {1, 3, p, 2 * p, 20}) {
      const ScheduleShape shape{p, m};
      const auto lists = zero_bubble_h1(shape);
      const SimulationResult plain = simulate(one_forward_one_backward(shape), shape);
      const SimulationResult result = played(lists, shape, {});
      EXPECT_EQ(result.peak_in_flight, plain.peak_in_flight);
      EXPECT_EQ(result.peak_activations,
                std::vector<int>(static_cast<std::size_t>(p), plain.peak_activations[0]));
      EXPECT_EQ(plain.peak_activations[0], std::min(p, m));
      for (std::size_t r = 0; r < lists.size(); ++r) {
        ActionList without = lists[r];
        std::erase_if(without,
                      [](const Action& a) { return a.kind == ActionKind::kBackwardWeight; });
        EXPECT_EQ(without, one_forward_one_backward(shape)[r]);
      }
    }
  }
}

TEST(ZeroBubble, AutoKeepsToTheLimitAndIsNeverBehindH1) {
  for (const SimulationCosts& costs : kCosts) {
    for (const int p : {1, 2, 3, 4, 8}) {
      for (const int m : {1, 2, p, 3 * p, 5 * p + 2}) {
        const ScheduleShape shape{p, m};
        const double h1 = simulate(zero_bubble_h1(shape), shape, costs).total_time;
        double shortest = 1e300;
        for (const int limit : {1, 2, p / 2, p, p + 1, 2 * p, 3 * p}) {
          if (limit < 1) continue;
          SCOPED_TRACE(name_of(shape, costs) + " limit " + std::to_string(limit));
          const SimulationResult result =
              played(zero_bubble_auto(shape, costs, limit), shape, costs);
          for (const int peak : result.peak_activations) EXPECT_LE(peak, limit);
          if (limit >= p) {
            EXPECT_LE(result.total_time, h1 + 1e-9);
            EXPECT_LE(result.total_time, shortest + 1e-9) << "more memory costs time";
            shortest = result.total_time;
          }
        }
      }
    }
  }
}

// The last rank cannot begin before the first micro-batch has come to it, and has all its work
// then. Nothing else is lost when it may postpone as many weight gradients as take the time in
// which its last gradient runs through to the first rank; where all cost the same that is the
// memory of ZB-H2, 2p - 1 micro-batches.
TEST(ZeroBubble, AutoReachesTheBoundWithEnoughMemory) {
  for (SimulationCosts costs : kCosts) {
    costs.send = 0;
    for (const int p : {2, 3, 4, 8}) {
      const ScheduleShape shape{p, 4 * p};
      SCOPED_TRACE(name_of(shape, costs));
      const double bound = work(shape, costs) + (p - 1) * costs.forward;
      const double postponed = std::ceil((p - 1) * costs.backward / costs.backward_weight - 1e-9);
      const int limit = std::max(2 * p - 1, 1 + static_cast<int>(postponed));
      EXPECT_NEAR(played(zero_bubble_auto(shape, costs, limit), shape, costs).total_time, bound,
                  1e-9);
    }
  }
}

// Every order in which a rank can do its work: forwards, backwards and weight gradients ascending,
// each behind what it needs.
std::vector<ActionList> all_orders(const ScheduleShape& shape, int rank) {
  std::vector<ActionList> orders;
  ActionList kinds;
  const int m = shape.num_micro_batches;
  const std::function<void(int, int, int)> extend = [&](int f, int b, int w) {
    if (w == m) orders.push_back(kinds);
    const auto with = [&](ActionKind kind, int i, int f2, int b2, int w2) {
      kinds.push_back({kind, i});
      extend(f2, b2, w2);
      kinds.pop_back();
    };
    if (f < m) with(ActionKind::kForward, f, f + 1, b, w);
    if (b < f) with(ActionKind::kBackward, b, f, b + 1, w);
    if (w < b) with(ActionKind::kBackwardWeight, w, f, b, w + 1);
  };
  extend(0, 0, 0);
  const bool last = rank + 1 == shape.num_ranks;
  for (ActionList& order : orders) {
    ActionList whole;
    for (const Action& action : order) {
      const bool forward = action.kind == ActionKind::kForward;
      const bool work_only = action.kind == ActionKind::kBackwardWeight;
      const int i = action.micro_batch;
      if (forward && rank > 0) whole.push_back({ActionKind::kRecvForward, i});
      if (!forward && !work_only && !last) whole.push_back({ActionKind::kRecvBackward, i});
      whole.push_back(action);
      if (forward && !last) whole.push_back({ActionKind::kSendForward, i});
      if (!forward && !work_only && rank > 0) whole.push_back({ActionKind::kSendBackward, i});
    }
    order = std::move(whole);
  }
  return orders;
}

// The shortest of all orders whose activations stay within each limit, by limit.
std::map<int, double> optimum(const ScheduleShape& shape, const SimulationCosts& costs) {
  std::vector<std::vector<ActionList>> orders;
  for (int r = 0; r < shape.num_ranks; ++r) orders.push_back(all_orders(shape, r));
  std::map<int, double> best;
  std::vector<ActionList> lists(orders.size());
  const std::function<void(std::size_t)> choose = [&](std::size_t rank) {
    if (rank < orders.size()) {
      for (const ActionList& order : orders[rank]) {
        lists[rank] = order;
        choose(rank + 1);
      }
      return;
    }
    const SimulationResult result = simulate(lists, shape, costs);
    if (!result.problem.empty()) return;
    const int peak =
        *std::max_element(result.peak_activations.begin(), result.peak_activations.end());
    for (int limit = peak; limit <= shape.num_micro_batches; ++limit) {
      const auto [entry, is_new] = best.try_emplace(limit, result.total_time);
      if (!is_new) entry->second = std::min(entry->second, result.total_time);
    }
  };
  choose(0);
  return best;
}

TEST(ZeroBubble, AutoIsTheBestOfAllOrdersWhereTheyCanBeCounted) {
  for (const ScheduleShape& shape : {ScheduleShape{2, 2}, {2, 3}, {3, 2}, {4, 2}}) {
    for (const SimulationCosts& costs : kCosts) {
      const std::map<int, double> best = optimum(shape, costs);
      ASSERT_EQ(static_cast<int>(best.size()), shape.num_micro_batches);
      for (const auto& [limit, total_time] : best) {
        EXPECT_NEAR(played(zero_bubble_auto(shape, costs, limit), shape, costs).total_time,
                    total_time, 1e-9)
            << name_of(shape, costs) << " limit " << limit;
      }
    }
  }
}

// Uneven stages: the plan knows which of them are slow.
TEST(ZeroBubble, AutoPlansForTheCostsOfEachStage) {
  const ScheduleShape shape{4, 12};
  const SimulationCosts uneven{.stage_factor = {0.5, 1.5, 1.5, 0.5}};
  const double known = played(zero_bubble_auto(shape, uneven, 4), shape, uneven).total_time;
  const double unknown = played(zero_bubble_auto(shape, {}, 4), shape, uneven).total_time;
  EXPECT_LE(known, unknown);
  EXPECT_LE(known, simulate(zero_bubble_h1(shape), shape, uneven).total_time);
  EXPECT_NE(simulate(zero_bubble_h1(shape), shape, {.stage_factor = {1, 1}}).problem, "");
}

TEST(ZeroBubble, RefusesWhatItCannotPlan) {
  EXPECT_THROW((void)zero_bubble_h1({2, 4, 2}), Error);
  EXPECT_THROW((void)zero_bubble_auto({2, 4, 2}, {}, 2), Error);
  EXPECT_THROW((void)zero_bubble_auto({2, 4}, {}, 0), Error);
  EXPECT_THROW((void)zero_bubble_auto({2, 4}, {.backward_weight = 0}, 2), Error);
  EXPECT_THROW((void)zero_bubble_auto({2, 4}, {.send = -1}, 2), Error);
}

}  // namespace
}  // namespace pentatron::pipeline_parallel
