// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "pentatron/pipeline_parallel/schedule.h"

namespace pentatron::pipeline_parallel {

// In any one unit of time, which the result has too. Costs of one stage.
struct SimulationCosts {
  double forward = 1.0;
  double backward = 1.0;         // for the stage's input
  double backward_weight = 1.0;  // without kBackwardWeight in the lists it is part of kBackward
  double send = 0.0;             // from the end of the work to the arrival of its message
  // Factors of what a stage computes, one a stage; empty: all alike.
  std::vector<double> stage_factor = {};

  [[nodiscard]] double factor(int stage) const {
    return stage_factor.empty() ? 1.0 : stage_factor.at(static_cast<std::size_t>(stage));
  }
};

// Work of a rank, in the order in which it was done.
struct ActionSpan {
  Action action;
  double begin = 0;
  double end = 0;
};

struct SimulationResult {
  bool deadlock = false;
  std::string problem;  // empty when the lists are sound
  double total_time = 0;
  std::vector<double> busy_time;    // per rank
  double bubble_share = 0;          // 1 - busy / (ranks * total)
  std::vector<int> peak_in_flight;  // per rank: forwards whose backward has not run
  // Per rank: forwards of which something is still to be done, kBackwardWeight where there is one.
  // This is what activations are kept for.
  std::vector<int> peak_activations;
  std::vector<std::vector<ActionSpan>> spans;  // per rank: forwards, backwards, weights
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
