// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "pentatron/pipeline_parallel/schedule.h"

namespace pentatron::pipeline_parallel {
namespace {

// A message on its way: messages of one edge and direction arrive in the order in which they were
// sent.
struct Message {
  int micro_batch;
  double arrival;
};

// What one rank knows of one micro-batch.
struct MicroBatchState {
  bool input = false;  // activations are here (or come from the batch)
  bool forward = false;
  bool sent_forward = false;
  bool gradient = false;  // output gradients are here (or start at the loss)
  bool backward = false;
  bool sent_backward = false;
  bool backward_weight = false;
};

struct RankState {
  std::size_t position = 0;
  double time = 0;
  double busy = 0;
  int in_flight = 0;
  int peak_in_flight = 0;
  std::vector<MicroBatchState> micro_batches;
  std::deque<Message> from_previous;  // activations
  std::deque<Message> from_next;      // gradients
};

class Player {
 public:
  Player(const std::vector<ActionList>& lists, const ScheduleShape& shape,
         const SimulationCosts& costs)
      : lists_(lists), shape_(shape), costs_(costs), ranks_(lists.size()) {
    for (const ActionList& list : lists) {
      for (const Action& action : list) {
        has_backward_ = has_backward_ || action.kind == ActionKind::kBackward;
        splits_weight_ = splits_weight_ || action.kind == ActionKind::kBackwardWeight;
      }
    }
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      ranks_[r].micro_batches.resize(
          static_cast<std::size_t>(std::max(0, shape.num_micro_batches)));
      for (MicroBatchState& state : ranks_[r].micro_batches) {
        state.input = r == 0;
        state.gradient = r + 1 == ranks_.size();
      }
    }
  }

  SimulationResult play() {
    if (static_cast<int>(lists_.size()) != shape_.num_stages) {
      result_.problem = fmt::format("{} lists for {} stages", lists_.size(), shape_.num_stages);
      return result_;
    }
    bool progress = true;
    while (progress && result_.problem.empty()) {
      progress = false;
      for (std::size_t r = 0; r < ranks_.size(); ++r) {
        while (ranks_[r].position < lists_[r].size() && run(static_cast<int>(r))) progress = true;
        if (!result_.problem.empty()) break;
      }
    }
    if (result_.problem.empty()) check_end();
    summarise();
    return result_;
  }

 private:
  // Runs the rank's next action; false: it must wait, or a problem was found.
  bool run(int rank) {
    RankState& state = ranks_[static_cast<std::size_t>(rank)];
    const Action& action = lists_[static_cast<std::size_t>(rank)][state.position];
    if (action.micro_batch < 0 || action.micro_batch >= shape_.num_micro_batches ||
        action.chunk != 0) {
      return fail(rank, action, "there is no such micro-batch or chunk");
    }
    if (action.edge != 0) {
      return fail(rank, action, fmt::format("a chain of stages has no edge {}", action.edge));
    }
    MicroBatchState& micro = state.micro_batches[static_cast<std::size_t>(action.micro_batch)];
    const bool done = step(rank, state, micro, action);
    if (done) ++state.position;
    return done;
  }

  bool step(int rank, RankState& state, MicroBatchState& micro, const Action& action) {
    switch (action.kind) {
      case ActionKind::kForward:
        if (!micro.input) return fail(rank, action, "its input was not received");
        if (micro.forward) return fail(rank, action, "it ran before");
        micro.forward = true;
        spend(state, costs_.forward);
        state.peak_in_flight = std::max(state.peak_in_flight, ++state.in_flight);
        return true;
      case ActionKind::kBackward:
        if (!micro.forward) return fail(rank, action, "its forward did not run");
        if (!micro.gradient) return fail(rank, action, "its gradient was not received");
        if (micro.backward) return fail(rank, action, "it ran before");
        micro.backward = true;
        spend(state, splits_weight_ ? costs_.backward / 2 : costs_.backward);
        --state.in_flight;
        return true;
      case ActionKind::kBackwardWeight:
        if (!micro.backward) return fail(rank, action, "its backward did not run");
        if (micro.backward_weight) return fail(rank, action, "it ran before");
        micro.backward_weight = true;
        spend(state, costs_.backward_weight);
        return true;
      case ActionKind::kSendForward:
        if (rank + 1 >= shape_.num_stages) return fail(rank, action, "there is no next stage");
        if (!micro.forward) return fail(rank, action, "its forward did not run");
        if (micro.sent_forward) return fail(rank, action, "it was sent before");
        micro.sent_forward = true;
        post(ranks_[static_cast<std::size_t>(rank) + 1].from_previous, state, action);
        return true;
      case ActionKind::kSendBackward:
        if (rank == 0) return fail(rank, action, "there is no previous stage");
        if (!micro.backward) return fail(rank, action, "its backward did not run");
        if (micro.sent_backward) return fail(rank, action, "it was sent before");
        micro.sent_backward = true;
        post(ranks_[static_cast<std::size_t>(rank) - 1].from_next, state, action);
        return true;
      case ActionKind::kRecvForward:
        if (rank == 0) return fail(rank, action, "there is no previous stage");
        return receive(rank, state, state.from_previous, micro.input, action);
      case ActionKind::kRecvBackward:
        if (rank + 1 >= shape_.num_stages) return fail(rank, action, "there is no next stage");
        return receive(rank, state, state.from_next, micro.gradient, action);
    }
    return fail(rank, action, "unknown kind");
  }

  void spend(RankState& state, double cost) {
    state.time += cost;
    state.busy += cost;
  }

  // The sender goes on at once; the message takes costs_.send to arrive.
  void post(std::deque<Message>& edge, const RankState& state, const Action& action) {
    edge.push_back({action.micro_batch, state.time + costs_.send});
  }

  bool receive(int rank, RankState& state, std::deque<Message>& edge, bool& here,
               const Action& action) {
    if (here) return fail(rank, action, "it was received before");
    if (edge.empty()) return false;
    if (edge.front().micro_batch != action.micro_batch) {
      return fail(rank, action,
                  fmt::format("micro-batch {} comes instead", edge.front().micro_batch));
    }
    state.time = std::max(state.time, edge.front().arrival);
    edge.pop_front();
    here = true;
    return true;
  }

  bool fail(int rank, const Action& action, std::string_view reason) {
    result_.problem = fmt::format("stage {}: {} of micro-batch {} (chunk {}): {}", rank,
                                  to_string(action.kind), action.micro_batch, action.chunk, reason);
    return false;
  }

  void check_end() {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (ranks_[r].position < lists_[r].size()) {
        const Action& action = lists_[r][ranks_[r].position];
        result_.deadlock = true;
        result_.problem = fmt::format("deadlock: stage {} waits in {} of micro-batch {}", r,
                                      to_string(action.kind), action.micro_batch);
        return;
      }
    }
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      const RankState& state = ranks_[r];
      if (!state.from_previous.empty() || !state.from_next.empty()) {
        result_.problem = fmt::format("stage {}: a message to it was never received", r);
        return;
      }
      for (std::size_t i = 0; i < state.micro_batches.size(); ++i) {
        const MicroBatchState& micro = state.micro_batches[i];
        const bool whole = micro.forward && micro.backward == has_backward_ &&
                           micro.backward_weight == splits_weight_;
        if (!whole) {
          result_.problem = fmt::format(
              "stage {}: micro-batch {} has forward {}, backward {}, backward-weight {}", r, i,
              micro.forward, micro.backward, micro.backward_weight);
          return;
        }
      }
    }
  }

  void summarise() {
    double busy = 0;
    for (const RankState& state : ranks_) {
      result_.total_time = std::max(result_.total_time, state.time);
      result_.busy_time.push_back(state.busy);
      result_.peak_in_flight.push_back(state.peak_in_flight);
      busy += state.busy;
    }
    const double whole = static_cast<double>(ranks_.size()) * result_.total_time;
    result_.bubble_share = whole > 0 ? 1 - busy / whole : 0;
  }

  const std::vector<ActionList>& lists_;
  const ScheduleShape& shape_;
  const SimulationCosts& costs_;
  std::vector<RankState> ranks_;
  bool has_backward_ = false;
  bool splits_weight_ = false;
  SimulationResult result_;
};

}  // namespace

SimulationResult simulate(const std::vector<ActionList>& lists, const ScheduleShape& shape,
                          const SimulationCosts& costs) {
  return Player(lists, shape, costs).play();
}

}  // namespace pentatron::pipeline_parallel
