// SPDX-License-Identifier: Apache-2.0
#include "pentatron/pipeline_parallel/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

namespace pentatron::pipeline_parallel {
namespace {

// Where messages queue up: one direction from one rank to another.
struct Channel {
  int from;
  int to;
  bool forward;
  auto operator<=>(const Channel&) const = default;
};

// A message on its way, named as its receiver names it.
struct Message {
  int stage;
  int edge;
  int micro_batch;
  double arrival;
};

// What is known of one micro-batch on one stage. Without incoming edges the activations come from
// the batch, without outgoing ones the gradients start at the loss.
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
  const auto ends = [&graph](int stage, bool next) {
    const StageEdges& edges = graph[static_cast<std::size_t>(stage)];
    std::vector<int> stages;
    for (const StageEdge& edge : next ? edges.next : edges.previous) stages.push_back(edge.stage);
    return stages;
  };
  const auto holds_once = [](const std::vector<int>& stages, int stage) {
    return std::count(stages.begin(), stages.end(), stage) == 1;
  };
  std::vector<int> waiting_for;  // incoming edges whose stage is not yet in order
  for (int stage = 0; stage < num_stages; ++stage) {
    waiting_for.push_back(static_cast<int>(ends(stage, false).size()));
    for (const bool next : {false, true}) {
      for (const int peer : ends(stage, next)) {
        if (peer < 0 || peer >= num_stages || peer == stage ||
            !holds_once(ends(stage, next), peer) || !holds_once(ends(peer, !next), stage)) {
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
  int activations = 0;
  int peak_activations = 0;
  std::vector<ActionSpan> spans;
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
    if (static_cast<int>(lists_.size()) != shape_.num_ranks) {
      result_.problem = fmt::format("{} lists for {} ranks", lists_.size(), shape_.num_ranks);
      return result_;
    }
    result_.problem = problem_of(graph_, shape_.num_ranks * shape_.num_chunks);
    if (!result_.problem.empty()) return result_;
    if (!costs_.stage_factor.empty() && costs_.stage_factor.size() != graph_.size()) {
      result_.problem = fmt::format("{} factors of costs for {} stages", costs_.stage_factor.size(),
                                    graph_.size());
      return result_;
    }
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
    for (const StageEdges& edges : graph_) {
      MicroBatchState state;
      state.inputs.assign(edges.previous.size(), false);
      state.sent_backward.assign(edges.previous.size(), false);
      state.gradients.assign(edges.next.size(), false);
      state.sent_forward.assign(edges.next.size(), false);
      stages_.emplace_back(static_cast<std::size_t>(std::max(0, shape_.num_micro_batches)), state);
    }
  }

  [[nodiscard]] int stage_of(int rank, int chunk) const { return chunk * shape_.num_ranks + rank; }
  [[nodiscard]] int rank_of(int stage) const { return stage % shape_.num_ranks; }
  [[nodiscard]] const StageEdges& edges_of(int stage) const {
    return graph_[static_cast<std::size_t>(stage)];
  }

  // Why the stage has no such edge; empty when it has.
  std::string edge_problem(int stage, const Action& action) const {
    std::size_t count = 1;  // work of the stage itself names edge 0
    if (action.kind == ActionKind::kSendForward || action.kind == ActionKind::kRecvBackward) {
      count = edges_of(stage).next.size();
      if (count == 0) return "there is no next stage";
    }
    if (action.kind == ActionKind::kRecvForward || action.kind == ActionKind::kSendBackward) {
      count = edges_of(stage).previous.size();
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
        action.chunk < 0 || action.chunk >= shape_.num_chunks) {
      return fail(rank, action, "there is no such micro-batch or chunk");
    }
    const int stage = stage_of(rank, action.chunk);
    if (const std::string problem = edge_problem(stage, action); !problem.empty()) {
      return fail(rank, action, problem);
    }
    MicroBatchState& micro =
        stages_[static_cast<std::size_t>(stage)][static_cast<std::size_t>(action.micro_batch)];
    const bool done = step(rank, state, micro, action);
    if (done) ++state.position;
    return done;
  }

  bool step(int rank, RankState& state, MicroBatchState& micro, const Action& action) {
    switch (action.kind) {
      case ActionKind::kForward:
        if (!all(micro.inputs)) return fail(rank, action, "its input was not received");
        if (micro.forward) return fail(rank, action, "it ran before");
        micro.forward = true;
        spend(rank, state, action, costs_.forward);
        state.peak_in_flight = std::max(state.peak_in_flight, ++state.in_flight);
        state.peak_activations = std::max(state.peak_activations, ++state.activations);
        return true;
      case ActionKind::kBackward:
        if (!micro.forward) return fail(rank, action, "its forward did not run");
        if (!all(micro.gradients)) return fail(rank, action, "its gradient was not received");
        if (micro.backward) return fail(rank, action, "it ran before");
        micro.backward = true;
        spend(rank, state, action, costs_.backward + (splits_weight_ ? 0 : costs_.backward_weight));
        --state.in_flight;
        if (!splits_weight_) --state.activations;
        return true;
      case ActionKind::kBackwardWeight:
        if (!micro.backward) return fail(rank, action, "its backward did not run");
        if (micro.backward_weight) return fail(rank, action, "it ran before");
        micro.backward_weight = true;
        spend(rank, state, action, costs_.backward_weight);
        --state.activations;
        return true;
      case ActionKind::kSendForward:
        if (!micro.forward) return fail(rank, action, "its forward did not run");
        return post(rank, micro.sent_forward, action, true);
      case ActionKind::kSendBackward:
        if (!micro.backward) return fail(rank, action, "its backward did not run");
        return post(rank, micro.sent_backward, action, false);
      case ActionKind::kRecvForward:
        return receive(rank, state, micro.inputs, action, true);
      case ActionKind::kRecvBackward:
        return receive(rank, state, micro.gradients, action, false);
    }
    return fail(rank, action, "unknown kind");
  }

  void spend(int rank, RankState& state, const Action& action, double cost) {
    cost *= costs_.factor(stage_of(rank, action.chunk));
    state.spans.push_back({action, state.time, state.time + cost});
    state.time += cost;
    state.busy += cost;
  }

  // The stage at the other end of an action's edge.
  [[nodiscard]] int peer_of(int rank, const Action& action, bool towards_next) const {
    const StageEdges& own = edges_of(stage_of(rank, action.chunk));
    const auto edge = static_cast<std::size_t>(action.edge);
    return (towards_next ? own.next : own.previous)[edge].stage;
  }

  // The sender goes on at once; the message takes costs_.send to arrive.
  bool post(int rank, std::vector<bool>& sent, const Action& action, bool forward) {
    const auto edge = static_cast<std::size_t>(action.edge);
    if (sent[edge]) return fail(rank, action, "it was sent before");
    sent[edge] = true;
    const int peer = peer_of(rank, action, forward);
    // The number that the edge has at its other end.
    const std::vector<StageEdge>& theirs = forward ? edges_of(peer).previous : edges_of(peer).next;
    const int stage = stage_of(rank, action.chunk);
    const auto there = std::find_if(theirs.begin(), theirs.end(), [stage](const StageEdge& other) {
      return other.stage == stage;
    });
    channels_[{rank, rank_of(peer), forward}].push_back(
        {peer, static_cast<int>(there - theirs.begin()), action.micro_batch,
         ranks_[static_cast<std::size_t>(rank)].time + costs_.send});
    return true;
  }

  bool receive(int rank, RankState& state, std::vector<bool>& here, const Action& action,
               bool forward) {
    const auto number = static_cast<std::size_t>(action.edge);
    if (here[number]) return fail(rank, action, "it was received before");
    const int sender = rank_of(peer_of(rank, action, !forward));
    std::deque<Message>& channel = channels_[{sender, rank, forward}];
    const int stage = stage_of(rank, action.chunk);
    const auto wanted = std::find_if(channel.begin(), channel.end(), [&](const Message& message) {
      return message.stage == stage && message.edge == action.edge &&
             message.micro_batch == action.micro_batch;
    });
    if (channel.empty() || (sender == rank && wanted == channel.end())) return false;
    if (sender != rank && wanted != channel.begin()) {
      return fail(
          rank, action,
          fmt::format("micro-batch {} (chunk {}) comes instead", channel.front().micro_batch,
                      channel.front().stage / shape_.num_ranks));
    }
    state.time = std::max(state.time, wanted->arrival);
    channel.erase(wanted);
    here[number] = true;
    return true;
  }

  bool fail(int rank, const Action& action, std::string_view reason) {
    result_.problem = fmt::format("rank {}: {} of micro-batch {} (chunk {}): {}", rank,
                                  to_string(action.kind), action.micro_batch, action.chunk, reason);
    return false;
  }

  void check_end() {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (ranks_[r].position < lists_[r].size()) {
        const Action& action = lists_[r][ranks_[r].position];
        result_.deadlock = true;
        result_.problem = fmt::format("deadlock: rank {} waits in {} of micro-batch {} (chunk {})",
                                      r, to_string(action.kind), action.micro_batch, action.chunk);
        return;
      }
    }
    for (const auto& [channel, messages] : channels_) {
      if (messages.empty()) continue;
      result_.problem =
          fmt::format("stage {}: a message to it was never received", messages.front().stage);
      return;
    }
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      for (std::size_t i = 0; i < stages_[s].size(); ++i) {
        const MicroBatchState& micro = stages_[s][i];
        const bool whole = micro.forward && micro.backward == has_backward_ &&
                           micro.backward_weight == splits_weight_;
        if (!whole) {
          result_.problem = fmt::format(
              "stage {}: micro-batch {} has forward {}, backward {}, backward-weight {}", s, i,
              micro.forward, micro.backward, micro.backward_weight);
          return;
        }
      }
    }
  }

  void summarise() {
    double busy = 0;
    for (RankState& state : ranks_) {
      result_.total_time = std::max(result_.total_time, state.time);
      result_.busy_time.push_back(state.busy);
      result_.peak_in_flight.push_back(state.peak_in_flight);
      result_.peak_activations.push_back(state.peak_activations);
      result_.spans.push_back(std::move(state.spans));
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
  std::vector<std::vector<MicroBatchState>> stages_;  // per stage, per micro-batch
  std::map<Channel, std::deque<Message>> channels_;
  bool has_backward_ = false;
  bool splits_weight_ = false;
  SimulationResult result_;
};

}  // namespace

SimulationResult simulate(const std::vector<ActionList>& lists, const ScheduleShape& shape,
                          const SimulationCosts& costs, const StageGraph& graph) {
  return Player(lists, shape, costs,
                graph.empty() ? chain_graph(shape.num_ranks * shape.num_chunks) : graph)
      .play();
}

}  // namespace pentatron::pipeline_parallel
