// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "pentatron/pipeline_parallel/schedule.h"

namespace pentatron::pipeline_parallel {
namespace {

// A message on its way: messages of one edge and direction arrive in the order in which they were
// sent.
struct Message {
  int micro_batch;
  double arrival;
};

// What one rank knows of one micro-batch. Without incoming edges the activations come from the
// batch, without outgoing ones the gradients start at the loss.
struct MicroBatchState {
  std::vector<bool> inputs;     // per incoming edge: activations are here
  std::vector<bool> gradients;  // per outgoing edge: output gradients are here
  std::vector<bool> sent_forward;
  std::vector<bool> sent_backward;
  bool forward = false;
  bool backward = false;
  bool backward_weight = false;
};

bool all(const std::vector<bool>& flags) {
  return std::find(flags.begin(), flags.end(), false) == flags.end();
}

// Why the graph cannot be one; empty when it can.
std::string problem_of(const StageGraph& graph, int num_stages) {
  if (static_cast<int>(graph.size()) != num_stages) {
    return fmt::format("the graph has {} stages, the schedule {}", graph.size(), num_stages);
  }
  const auto ends = [&graph](int stage, bool next) -> const std::vector<int>& {
    const StagePeers& peers = graph[static_cast<std::size_t>(stage)];
    return next ? peers.next : peers.previous;
  };
  std::vector<int> waiting_for;  // incoming edges whose stage is not yet in order
  for (int stage = 0; stage < num_stages; ++stage) {
    waiting_for.push_back(static_cast<int>(ends(stage, false).size()));
    for (const bool next : {false, true}) {
      for (const int peer : ends(stage, next)) {
        if (peer < 0 || peer >= num_stages || peer == stage ||
            std::count(ends(stage, next).begin(), ends(stage, next).end(), peer) != 1 ||
            std::count(ends(peer, !next).begin(), ends(peer, !next).end(), stage) != 1) {
          return fmt::format("stages {} and {} do not share exactly one edge", stage, peer);
        }
      }
    }
  }
  int in_order = 0;
  for (bool progress = true; progress;) {
    progress = false;
    for (int stage = 0; stage < num_stages; ++stage) {
      int& waiting = waiting_for[static_cast<std::size_t>(stage)];
      if (waiting != 0) continue;
      waiting = -1;
      ++in_order;
      progress = true;
      for (const int peer : ends(stage, true)) --waiting_for[static_cast<std::size_t>(peer)];
    }
  }
  return in_order == num_stages ? "" : "the stages form a cycle";
}

struct RankState {
  std::size_t position = 0;
  double time = 0;
  double busy = 0;
  int in_flight = 0;
  int peak_in_flight = 0;
  std::vector<MicroBatchState> micro_batches;
  std::vector<std::deque<Message>> from_previous;  // activations, per incoming edge
  std::vector<std::deque<Message>> from_next;      // gradients, per outgoing edge
};

class Player {
 public:
  Player(const std::vector<ActionList>& lists, const ScheduleShape& shape,
         const SimulationCosts& costs, StageGraph graph)
      : lists_(lists),
        shape_(shape),
        costs_(costs),
        graph_(std::move(graph)),
        ranks_(lists.size()) {
    for (const ActionList& list : lists) {
      for (const Action& action : list) {
        has_backward_ = has_backward_ || action.kind == ActionKind::kBackward;
        splits_weight_ = splits_weight_ || action.kind == ActionKind::kBackwardWeight;
      }
    }
  }

  SimulationResult play() {
    if (static_cast<int>(lists_.size()) != shape_.num_stages) {
      result_.problem = fmt::format("{} lists for {} stages", lists_.size(), shape_.num_stages);
      return result_;
    }
    result_.problem = problem_of(graph_, shape_.num_stages);
    if (!result_.problem.empty()) return result_;
    prepare();
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
  void prepare() {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      const std::size_t incoming = graph_[r].previous.size();
      const std::size_t outgoing = graph_[r].next.size();
      ranks_[r].from_previous.resize(incoming);
      ranks_[r].from_next.resize(outgoing);
      MicroBatchState state;
      state.inputs.assign(incoming, false);
      state.sent_backward.assign(incoming, false);
      state.gradients.assign(outgoing, false);
      state.sent_forward.assign(outgoing, false);
      ranks_[r].micro_batches.assign(
          static_cast<std::size_t>(std::max(0, shape_.num_micro_batches)), state);
    }
  }

  // Why the stage has no such edge; empty when it has.
  std::string edge_problem(int rank, const Action& action) const {
    const StagePeers& peers = graph_[static_cast<std::size_t>(rank)];
    std::size_t count = 1;  // work of the stage itself names edge 0
    if (action.kind == ActionKind::kSendForward || action.kind == ActionKind::kRecvBackward) {
      count = peers.next.size();
      if (count == 0) return "there is no next stage";
    }
    if (action.kind == ActionKind::kRecvForward || action.kind == ActionKind::kSendBackward) {
      count = peers.previous.size();
      if (count == 0) return "there is no previous stage";
    }
    const bool known = action.edge >= 0 && static_cast<std::size_t>(action.edge) < count;
    return known ? "" : fmt::format("it has no edge {}", action.edge);
  }

  // Runs the rank's next action; false: it must wait, or a problem was found.
  bool run(int rank) {
    RankState& state = ranks_[static_cast<std::size_t>(rank)];
    const Action& action = lists_[static_cast<std::size_t>(rank)][state.position];
    if (action.micro_batch < 0 || action.micro_batch >= shape_.num_micro_batches ||
        action.chunk != 0) {
      return fail(rank, action, "there is no such micro-batch or chunk");
    }
    if (const std::string problem = edge_problem(rank, action); !problem.empty()) {
      return fail(rank, action, problem);
    }
    MicroBatchState& micro = state.micro_batches[static_cast<std::size_t>(action.micro_batch)];
    const bool done = step(rank, state, micro, action);
    if (done) ++state.position;
    return done;
  }

  bool step(int rank, RankState& state, MicroBatchState& micro, const Action& action) {
    const auto edge = static_cast<std::size_t>(action.edge);
    switch (action.kind) {
      case ActionKind::kForward:
        if (!all(micro.inputs)) return fail(rank, action, "its input was not received");
        if (micro.forward) return fail(rank, action, "it ran before");
        micro.forward = true;
        spend(state, costs_.forward);
        state.peak_in_flight = std::max(state.peak_in_flight, ++state.in_flight);
        return true;
      case ActionKind::kBackward:
        if (!micro.forward) return fail(rank, action, "its forward did not run");
        if (!all(micro.gradients)) return fail(rank, action, "its gradient was not received");
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
        if (!micro.forward) return fail(rank, action, "its forward did not run");
        return post(rank, micro.sent_forward, action, true);
      case ActionKind::kSendBackward:
        if (!micro.backward) return fail(rank, action, "its backward did not run");
        return post(rank, micro.sent_backward, action, false);
      case ActionKind::kRecvForward:
        return receive(rank, state, state.from_previous[edge], micro.inputs, action);
      case ActionKind::kRecvBackward:
        return receive(rank, state, state.from_next[edge], micro.gradients, action);
    }
    return fail(rank, action, "unknown kind");
  }

  void spend(RankState& state, double cost) {
    state.time += cost;
    state.busy += cost;
  }

  // The sender goes on at once; the message takes costs_.send to arrive.
  bool post(int rank, std::vector<bool>& sent, const Action& action, bool forward) {
    const auto edge = static_cast<std::size_t>(action.edge);
    if (sent[edge]) return fail(rank, action, "it was sent before");
    sent[edge] = true;
    const StagePeers& own = graph_[static_cast<std::size_t>(rank)];
    const auto peer = static_cast<std::size_t>((forward ? own.next : own.previous)[edge]);
    // The number that the edge has at its other end.
    const std::vector<int>& theirs = forward ? graph_[peer].previous : graph_[peer].next;
    const auto there = std::find(theirs.begin(), theirs.end(), rank) - theirs.begin();
    auto& edges = forward ? ranks_[peer].from_previous : ranks_[peer].from_next;
    edges[static_cast<std::size_t>(there)].push_back(
        {action.micro_batch, ranks_[static_cast<std::size_t>(rank)].time + costs_.send});
    return true;
  }

  bool receive(int rank, RankState& state, std::deque<Message>& edge, std::vector<bool>& here,
               const Action& action) {
    const auto number = static_cast<std::size_t>(action.edge);
    if (here[number]) return fail(rank, action, "it was received before");
    if (edge.empty()) return false;
    if (edge.front().micro_batch != action.micro_batch) {
      return fail(rank, action,
                  fmt::format("micro-batch {} comes instead", edge.front().micro_batch));
    }
    state.time = std::max(state.time, edge.front().arrival);
    edge.pop_front();
    here[number] = true;
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
      const auto has_messages = [](const std::deque<Message>& edge) { return !edge.empty(); };
      if (std::any_of(state.from_previous.begin(), state.from_previous.end(), has_messages) ||
          std::any_of(state.from_next.begin(), state.from_next.end(), has_messages)) {
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
  StageGraph graph_;
  std::vector<RankState> ranks_;
  bool has_backward_ = false;
  bool splits_weight_ = false;
  SimulationResult result_;
};

}  // namespace

SimulationResult simulate(const std::vector<ActionList>& lists, const ScheduleShape& shape,
                          const SimulationCosts& costs, const StageGraph& graph) {
  return Player(lists, shape, costs, graph.empty() ? chain_graph(shape.num_stages) : graph).play();
}

}  // namespace pentatron::pipeline_parallel
