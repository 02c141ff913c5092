// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// Schedules are data: per pipeline rank a list of actions made by a pure function (those that split
// backward stand in zero_bubble.h). The executor runs a list, the simulator (simulate.h) checks it
// without a model. Both read the same graph of stages.
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
// Every forward of a rank, then every backward (GPipe, Huang et al., arXiv 1811.06965): bubble
// (ranks - 1) (forward + backward), all micro-batches in flight at once. Micro-batches go in
// ascending order both ways, so weight gradients are summed as in 1F1B. Also several chunks.
[[nodiscard]] std::vector<ActionList> gpipe(const ScheduleShape& shape);
// All chunks; also where there is one.
[[nodiscard]] std::vector<ActionList> forward_only(const ScheduleShape& shape);
// 1F1B over the chunks of each rank (Narayanan et al., arXiv 2104.04473 section 2.2): warm-up of
// 2 (ranks - 1 - rank) + (chunks - 1) group_size forwards, then forward and backward in turn. A
// group_size below num_ranks, or micro-batches whose rest over it is: kConfig.
[[nodiscard]] std::vector<ActionList> interleaved_one_forward_one_backward(
    const ScheduleShape& shape);

}  // namespace pentatron::pipeline_parallel
