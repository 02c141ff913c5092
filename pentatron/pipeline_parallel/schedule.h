// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// Schedules are data: per pipeline rank a list of actions made by a pure function. The executor
// runs a list, the simulator checks it without a model.
namespace pentatron::pipeline_parallel {

enum class ActionKind {
  kForward,         // run the stage's forward of a micro-batch
  kBackward,        // backward for input (and for weights unless the schedule has kBackwardWeight)
  kBackwardWeight,  // postponed weight gradients of a micro-batch
  kSendForward,     // activations to the next stage
  kRecvForward,
  kSendBackward,  // gradients to the previous stage
  kRecvBackward,
};
[[nodiscard]] std::string_view to_string(ActionKind kind);

struct Action {
  ActionKind kind;
  int micro_batch = 0;
  int chunk = 0;  // virtual stage on this rank
  // Sends and receives: number among the stage's outgoing edges (kSendForward, kRecvBackward) or
  // incoming ones (kRecvForward, kSendBackward). A chain has one of each.
  int edge = 0;
  bool operator==(const Action&) const = default;
};
using ActionList = std::vector<Action>;

// The other ends of one stage's edges, in order of their numbers: next[Action::edge] gets the
// activations of a kSendForward, previous[Action::edge] sends those of a kRecvForward.
struct StagePeers {
  std::vector<int> previous = {};
  std::vector<int> next = {};
};
// Stages form a directed graph without cycles, one entry a stage; two stages share one edge at
// most.
using StageGraph = std::vector<StagePeers>;
[[nodiscard]] StageGraph chain_graph(int num_stages);

struct ScheduleShape {
  int num_stages = 1;
  int num_micro_batches = 1;
};

// Lists for all ranks. num_stages 1 gives forward, backward in turn without sends. A shape below 1:
// kConfig.
[[nodiscard]] std::vector<ActionList> one_forward_one_backward(const ScheduleShape& shape);
[[nodiscard]] std::vector<ActionList> forward_only(const ScheduleShape& shape);
// 1F1B with the weight gradients of a micro-batch split off and placed into the cool-down (a first
// zero-bubble form).
[[nodiscard]] std::vector<ActionList> one_forward_one_backward_split_weight(
    const ScheduleShape& shape);

// In any one unit of time, which the result has too.
struct SimulationCosts {
  double forward = 1.0;
  double backward = 2.0;  // whole backward; with kBackwardWeight in the list: forward-like part
                          // only is backward/2
  double backward_weight = 1.0;
  double send = 0.0;
};
struct SimulationResult {
  bool deadlock = false;
  std::string problem;  // empty when the lists are sound
  double total_time = 0;
  std::vector<double> busy_time;    // per rank
  double bubble_share = 0;          // 1 - busy / (ranks * total)
  std::vector<int> peak_in_flight;  // per rank: forwards whose backward has not run
};
// Plays the lists with rendezvous between matching sends and receives (a send may be posted early;
// a receive blocks). Checks: every micro-batch forward and backward exactly once, in an order that
// data allows (a stage's forward after the activations of all its incoming edges, its backward
// after the gradients of all outgoing ones), every send matched. Without `graph` stages form a
// chain; a graph with a cycle, or whose two ends of an edge disagree, is a problem.
[[nodiscard]] SimulationResult simulate(const std::vector<ActionList>& lists,
                                        const ScheduleShape& shape,
                                        const SimulationCosts& costs = {},
                                        const StageGraph& graph = {});

}  // namespace pentatron::pipeline_parallel
