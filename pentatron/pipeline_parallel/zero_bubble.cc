// SPDX-License-Identifier: Apache-2.0
#include "pentatron/pipeline_parallel/zero_bubble.h"

#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <set>

#include "pentatron/base/error.h"
#include "pentatron/pipeline_parallel/schedule_writer.h"

namespace pentatron::pipeline_parallel {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::infinity();

enum class First { kBackward, kForward, kInTurn };

// One way to decide what a rank does next.
struct Rule {
  int ahead = 0;        // forwards beyond those of 1F1B that a rank may have in flight,
  bool spread = false;  // but not more than there are ranks behind it
  First first = First::kBackward;
  // A wait for something that is already on its way is filled when it is at least this share of
  // what the weight gradients take.
  double min_fill = 0;
};

struct Plan {
  std::vector<ActionList> lists;
  double total_time = 0;
  long activations = 0;  // sum of the ranks' peaks
};

// Lets the ranks decide in the order of time, so that each sees all messages that come before its
// decision.
class GreedyPlanner final {
 public:
  GreedyPlanner(const ScheduleShape& shape, const SimulationCosts& costs, int limit,
                const Rule& rule)
      : shape_(shape), costs_(costs), limit_(limit), rule_(rule) {
    const auto count = static_cast<std::size_t>(shape.num_micro_batches);
    for (int r = 0; r < shape.num_ranks; ++r) {
      ranks_.push_back({.writer = ScheduleWriter(shape_, r),
                        .input = std::vector<double>(count, r == 0 ? 0 : kUnknown),
                        .gradient = std::vector<double>(count, kUnknown)});
      awake_.emplace(0.0, r);
    }
  }

  Plan plan() {
    while (!awake_.empty()) {
      const auto [time, rank] = *awake_.begin();
      awake_.erase(awake_.begin());
      at(rank).time = time;
      decide(rank);
    }
    Plan plan;
    for (Rank& rank : ranks_) {
      plan.lists.push_back(rank.writer.take());
      plan.total_time = std::max(plan.total_time, rank.time);
      plan.activations += rank.max_kept;
    }
    return plan;
  }

 private:
  struct Rank {
    ScheduleWriter writer;
    std::vector<double> input;     // per micro-batch: when it is here
    std::vector<double> gradient;  // of the output, likewise
    int forwards = 0;              // done
    int backwards = 0;
    int weights = 0;
    double time = 0;  // when it is free
    double wakes_at = 0;
    bool idle = false;
    bool last_was_forward = false;
    int max_kept = 0;
  };

  [[nodiscard]] Rank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }

  // Forwards that the rank may have in flight.
  [[nodiscard]] int max_in_flight_of(int rank) const {
    const int behind = shape_.num_ranks - 1 - rank;
    const int ahead = rule_.spread ? std::min(rule_.ahead, behind) : rule_.ahead;
    return std::min(limit_, behind + 1 + ahead);
  }

  // When it could begin; kUnknown: not by what is known now.
  [[nodiscard]] double forward_at(int rank) {
    const Rank& r = at(rank);
    if (r.forwards == shape_.num_micro_batches || r.forwards - r.weights >= limit_ ||
        r.forwards - r.backwards >= max_in_flight_of(rank)) {
      return kUnknown;
    }
    return r.input[static_cast<std::size_t>(r.forwards)];
  }
  [[nodiscard]] double backward_at(int rank) {
    const Rank& r = at(rank);
    return r.backwards == r.forwards ? kUnknown : r.gradient[static_cast<std::size_t>(r.backwards)];
  }

  void decide(int rank) {
    Rank& r = at(rank);
    r.idle = false;
    const double forward = forward_at(rank);
    const double backward = backward_at(rank);
    const bool can_forward = forward <= r.time;
    const bool can_backward = backward <= r.time;
    const bool prefers_forward =
        rule_.first == First::kForward || (rule_.first == First::kInTurn && !r.last_was_forward);
    const double weight = costs_.backward_weight * costs_.factor(rank);
    const double wait = std::min(forward, backward) - r.time;
    if (can_forward && (prefers_forward || !can_backward)) {
      run_forward(rank, r);
    } else if (can_backward) {
      run_backward(rank, r);
    } else if (r.weights < r.backwards && wait >= rule_.min_fill * weight) {
      r.writer.backward_weight(r.weights++);
      r.time += weight;
      awake_.emplace(r.time, rank);
    } else {
      // Until this message, or one of which is not known yet; or done.
      r.idle = true;
      r.wakes_at = std::min(forward, backward);
      if (r.wakes_at < kUnknown) awake_.emplace(r.wakes_at, rank);
    }
  }

  void run_forward(int rank, Rank& r) {
    const auto micro_batch = static_cast<std::size_t>(r.forwards);
    r.writer.forward(r.forwards++);
    r.max_kept = std::max(r.max_kept, r.forwards - r.weights);
    r.time += costs_.forward * costs_.factor(rank);
    r.last_was_forward = true;
    awake_.emplace(r.time, rank);
    if (rank + 1 == shape_.num_ranks) {
      r.gradient[micro_batch] = r.time;
    } else {
      at(rank + 1).input[micro_batch] = r.time + costs_.send;
      wake(rank + 1, r.time + costs_.send);
    }
  }

  void run_backward(int rank, Rank& r) {
    const auto micro_batch = static_cast<std::size_t>(r.backwards);
    r.writer.backward(r.backwards++);
    r.time += costs_.backward * costs_.factor(rank);
    r.last_was_forward = false;
    awake_.emplace(r.time, rank);
    if (rank == 0) return;
    at(rank - 1).gradient[micro_batch] = r.time + costs_.send;
    wake(rank - 1, r.time + costs_.send);
  }

  void wake(int rank, double time) {
    Rank& r = at(rank);
    if (!r.idle || time >= r.wakes_at) return;
    awake_.erase({r.wakes_at, rank});
    r.wakes_at = std::max(r.time, time);
    awake_.emplace(r.wakes_at, rank);
  }

  const ScheduleShape& shape_;
  const SimulationCosts& costs_;
  int limit_;
  const Rule& rule_;
  std::vector<Rank> ranks_;
  std::set<std::pair<double, int>> awake_;  // when each rank decides again
};

std::vector<Rule> all_rules(int num_ranks) {
  std::vector<int> ahead = {0};
  for (int more = 1; more < 2 * num_ranks; more *= 2) ahead.push_back(more);
  ahead.push_back(num_ranks - 1);
  ahead.push_back(std::numeric_limits<int>::max() / 2);  // only the limit counts
  std::vector<Rule> rules;
  for (const int more : ahead) {
    for (const bool spread : {true, false}) {
      if (more == 0 && !spread) continue;  // the same
      for (const First first : {First::kBackward, First::kForward, First::kInTurn}) {
        for (const double min_fill : {0.0, 0.5, 1.0}) {
          rules.push_back({more, spread, first, min_fill});
        }
      }
    }
  }
  return rules;
}

// Shorter by more than rounding, or as long with fewer activations.
bool better(const Plan& plan, const Plan& than) {
  constexpr double kRounding = 1e-9;
  const double gain = than.total_time - plan.total_time;
  if (std::abs(gain) > kRounding * than.total_time) return gain > 0;
  return plan.activations < than.activations;
}

void check_costs(const SimulationCosts& costs, int max_in_flight) {
  PENTATRON_CHECK(
      costs.forward > 0 && costs.backward > 0 && costs.backward_weight > 0 && costs.send >= 0,
      kConfig,
      "costs of forward {}, backward {}, weight gradients {} and sending {} "
      "(--pipeline-schedule-costs): the first three must be above 0, the last at least "
      "0",
      costs.forward, costs.backward, costs.backward_weight, costs.send);
  PENTATRON_CHECK(max_in_flight >= 1, kConfig,
                  "--pipeline-schedule-max-in-flight {}: a rank must be able to keep the "
                  "activations of one micro-batch",
                  max_in_flight);
}

}  // namespace

std::vector<ActionList> zero_bubble_h1(const ScheduleShape& shape) {
  check_shape(shape, /*chunks=*/false);
  std::vector<ActionList> lists;
  for (int rank = 0; rank < shape.num_ranks; ++rank) {
    ScheduleWriter writer(shape, rank);
    const int warmup = num_warmup(shape, rank);
    int weights = 0;
    for (int i = 0; i < warmup; ++i) writer.forward(i);
    for (int i = warmup; i < shape.num_micro_batches; ++i) {
      writer.forward(i);
      writer.backward(i - warmup);
      // A later rank holds fewer forwards in flight, by exactly its number: it may postpone that
      // many without keeping more than the first rank does.
      if (i - warmup + 1 - weights > rank) writer.backward_weight(weights++);
    }
    for (int i = shape.num_micro_batches - warmup; i < shape.num_micro_batches; ++i) {
      writer.backward(i);
      writer.backward_weight(weights++);
    }
    while (weights < shape.num_micro_batches) writer.backward_weight(weights++);
    lists.push_back(writer.take());
  }
  return lists;
}

std::vector<ActionList> zero_bubble_auto(const ScheduleShape& shape, const SimulationCosts& costs,
                                         int max_in_flight) {
  check_shape(shape, /*chunks=*/false);
  check_costs(costs, max_in_flight);
  std::optional<Plan> best;
  const auto offer = [&best](Plan plan) {
    if (!best || better(plan, *best)) best = std::move(plan);
  };
  if (max_in_flight >= std::min(shape.num_ranks, shape.num_micro_batches)) {
    Plan plan{.lists = zero_bubble_h1(shape)};
    const SimulationResult played = simulate(plan.lists, shape, costs);
    plan.total_time = played.total_time;
    plan.activations =
        std::accumulate(played.peak_activations.begin(), played.peak_activations.end(), 0L);
    offer(std::move(plan));
  }
  for (const Rule& rule : all_rules(shape.num_ranks)) {
    offer(GreedyPlanner(shape, costs, max_in_flight, rule).plan());
  }
  return best->lists;
}

}  // namespace pentatron::pipeline_parallel
