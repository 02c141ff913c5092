// SPDX-License-Identifier: Apache-2.0
#include "pentatron/pipeline_parallel/make_schedule.h"

#include <algorithm>

#include "pentatron/base/error.h"
#include "pentatron/base/format.h"
#include "pentatron/config/pipeline_layout.h"
#include "pentatron/pipeline_parallel/zero_bubble.h"

namespace pentatron::pipeline_parallel {

ScheduleChoice schedule_choice(const config::ModelConfig& model,
                               const config::ParallelConfig& parallel) {
  // Embedding or loss alone: little work, but some.
  constexpr double kNoLayers = 0.1;
  ScheduleChoice choice{
      .name = parallel.pipeline_schedule,
      .max_in_flight = static_cast<int>(parallel.pipeline_schedule_max_in_flight)};
  const std::vector<config::StagePlan> plans = config::plan_pipeline(model, parallel);
  const double mean = static_cast<double>(model.num_layers) /
                      static_cast<double>(parallel.pipeline_model_parallel_size);
  for (const config::StagePlan& plan : plans) {
    choice.costs.stage_factor.push_back(std::max<double>(plan.num_layers(), kNoLayers) / mean);
  }
  if (const std::vector<double> costs = config::schedule_costs(parallel); !costs.empty()) {
    choice.costs.forward = costs[0];
    choice.costs.backward = costs[1];
    choice.costs.backward_weight = costs[2];
    choice.costs.send = costs[3];
  }
  return choice;
}

std::vector<ActionList> make_schedule(const ScheduleChoice& choice, const ScheduleShape& shape) {
  if (choice.name == "gpipe") return gpipe(shape);
  if (choice.name == "zb-h1") return zero_bubble_h1(shape);
  if (choice.name == "zb-auto") {
    const int limit = choice.max_in_flight > 0 ? choice.max_in_flight : shape.num_ranks;
    return zero_bubble_auto(shape, choice.costs, limit);
  }
  PENTATRON_CHECK(choice.name == "1f1b", kConfig, "--pipeline-schedule {}: expected one of {}",
                  quoted_for_message(choice.name), fmt::join(kScheduleNames, ", "));
  return shape.num_chunks > 1 ? interleaved_one_forward_one_backward(shape)
                              : one_forward_one_backward(shape);
}

}  // namespace pentatron::pipeline_parallel
