// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "pentatron/pipeline_parallel/schedule.h"
#include "pentatron/pipeline_parallel/simulate.h"

// Schedules with backward in two: for the stage's input, which the previous stage waits for, and
// for the weights, which nobody waits for and which therefore fills bubbles (Qi et al., Zero Bubble
// Pipeline Parallelism, arXiv 2401.10241). One stage a rank. On every rank forwards, backwards and
// weight gradients each take the micro-batches in ascending order, so gradients are summed as in
// 1F1B.
namespace pentatron::pipeline_parallel {

// The paper's ZB-H1: forwards and backwards in the order of 1F1B, and a rank postpones as many
// weight gradients as it has ranks before it. No rank keeps activations of more than num_ranks
// micro-batches, what the first rank of 1F1B keeps. With F, B and W the costs of forward, backward
// for input and for weights, W at most B, and 2 num_ranks micro-batches or more, the bubble is
// (num_ranks - 1) (F + B - W).
[[nodiscard]] std::vector<ActionList> zero_bubble_h1(const ScheduleShape& shape);

// Lists made for the costs, in which no rank keeps activations of more than `max_in_flight`
// micro-batches. Greedy in the manner of the paper's section 3.1: a rank that could go on with a
// backward or a forward does, and fills its waits with weight gradients; several rules for how far
// ranks run ahead, what goes first and which waits are worth filling are played, and the shortest
// outcome is taken (of equals that with fewer activations), ZB-H1's where it fits the limit and is
// not beaten. A pure function: all ranks get the same lists. max_in_flight below 1, or costs that
// are not above 0 (send: at least 0): kConfig.
[[nodiscard]] std::vector<ActionList> zero_bubble_auto(const ScheduleShape& shape,
                                                       const SimulationCosts& costs,
                                                       int max_in_flight);

}  // namespace pentatron::pipeline_parallel
