// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "pentatron/config/config.h"
#include "pentatron/pipeline_parallel/schedule.h"
#include "pentatron/pipeline_parallel/simulate.h"

namespace pentatron::pipeline_parallel {

// The names of --pipeline-schedule.
inline constexpr std::string_view kScheduleNames[] = {"1f1b", "gpipe", "zb-h1", "zb-auto"};

// Which schedule a training step follows.
struct ScheduleChoice {
  std::string name = "1f1b";
  // zb-auto: the most micro-batches whose activations a rank keeps (0: num_ranks, as 1F1B), and
  // the costs that it plans for.
  int max_in_flight = 0;
  SimulationCosts costs = {};
};

// What the options ask for. The stages' factors are their numbers of layers over the mean of the
// pipeline ranks; a stage without layers counts as a tenth of one.
[[nodiscard]] ScheduleChoice schedule_choice(const config::ModelConfig& model,
                                             const config::ParallelConfig& parallel);

// The lists of all ranks: 1f1b is interleaved where the shape has several chunks. Another name, or
// a shape that the schedule does not take: kConfig.
[[nodiscard]] std::vector<ActionList> make_schedule(const ScheduleChoice& choice,
                                                    const ScheduleShape& shape);

}  // namespace pentatron::pipeline_parallel
