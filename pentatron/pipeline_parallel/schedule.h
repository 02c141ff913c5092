// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// Schedules are data: per pipeline rank a list of actions made by a pure function. The executor
// runs a list, the simulator checks it without a model. Both read the same graph of stages.
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
  int chunk = 0;  // which of the rank's stages
  // Sends and receives: number among the stage's outgoing edges (kSendForward, kRecvBackward) or
  // incoming ones (kRecvForward, kSendBackward). A chain has one of each.
  int edge = 0;
  bool operator==(const Action&) const = default;
};
using ActionList = std::vector<Action>;

// One end of an edge between stages: the stage at the other end.
struct StageEdge {
  // Implicit: most graphs name stages only.
  StageEdge(int other, std::vector<std::string> names = {})  // NOLINT(google-explicit-constructor)
      : stage(other), items(std::move(names)) {}
  int stage;
  // Names of the bundle items that travel on it; empty: all. An output may go over several edges,
  // an input comes over one.
  std::vector<std::string> items;
};
// What Action::edge counts: next[edge] gets the activations of a kSendForward, previous[edge] sends
// those of a kRecvForward. A stage without outgoing edges returns the model's outputs.
struct StageEdges {
  std::vector<StageEdge> previous = {};
  std::vector<StageEdge> next = {};
};
// Stages form a directed graph without cycles, one entry a stage; two stages share one edge at
// most. Stage s stands on pipeline rank s % ranks, as its chunk s / ranks.
using StageGraph = std::vector<StageEdges>;
[[nodiscard]] StageGraph chain_graph(int num_stages);

struct ScheduleShape {
  int num_ranks = 1;
  int num_micro_batches = 1;
  int num_chunks = 1;  // stages a rank
  // Micro-batches of one chunk in a row before the rank turns to its next chunk; 0: num_ranks.
  int group_size = 0;
};

// Lists for all ranks of a chain of stages. One stage gives forward, backward in turn without
// sends. A shape below 1, or chunks where a schedule has none: kConfig.
[[nodiscard]] std::vector<ActionList> one_forward_one_backward(const ScheduleShape& shape);
// All chunks; also where there is one.
[[nodiscard]] std::vector<ActionList> forward_only(const ScheduleShape& shape);
// 1F1B with the weight gradients of a micro-batch split off and placed into the cool-down (a first
// zero-bubble form).
[[nodiscard]] std::vector<ActionList> one_forward_one_backward_split_weight(
    const ScheduleShape& shape);
// 1F1B over the chunks of each rank (Narayanan et al., arXiv 2104.04473 section 2.2): warm-up of
// 2 (ranks - 1 - rank) + (chunks - 1) group_size forwards, then forward and backward in turn. A
// group_size below num_ranks, or micro-batches whose rest over it is: kConfig.
[[nodiscard]] std::vector<ActionList> interleaved_one_forward_one_backward(
    const ScheduleShape& shape);

// In any one unit of time, which the result has too. Costs of one chunk.
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
// a receive blocks). Checks: every micro-batch forward and backward exactly once on every stage, in
// an order that data allows (a stage's forward after the activations of all its incoming edges, its
// backward after the gradients of all outgoing ones), every send matched. Messages of one direction
// from one rank to another arrive in the order in which they were sent, whatever stages they are
// for; a rank hands over to itself in any order. Without `graph` stages form a chain; a graph with
// a cycle, or whose two ends of an edge disagree, is a problem.
[[nodiscard]] SimulationResult simulate(const std::vector<ActionList>& lists,
                                        const ScheduleShape& shape,
                                        const SimulationCosts& costs = {},
                                        const StageGraph& graph = {});

}  // namespace pentatron::pipeline_parallel
