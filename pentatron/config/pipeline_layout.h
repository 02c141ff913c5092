// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "pentatron/config/config.h"

// Which stage of the pipeline holds what. Pure data from the options: models, schedules, planners
// and checks read the same plans.
namespace pentatron::config {

// What one stage holds. Stage s of a plan stands on pipeline rank s % pp, as its chunk s / pp.
struct StagePlan {
  bool embedding = false;
  // Global numbers [first_layer, end_layer) of decoder layers; equal: none.
  int first_layer = 0;
  int end_layer = 0;
  int mtp_layers = 0;  // extra prediction layers
  bool loss = false;

  [[nodiscard]] int num_layers() const { return end_layer - first_layer; }
  bool operator==(const StagePlan&) const = default;
};

// The stages of a pipeline in the order of the data; the first holds the embedding, the last the
// loss. Without options that say otherwise all hold equally many layers. Sizes or options that do
// not fit: kConfig, naming values and options.
[[nodiscard]] std::vector<StagePlan> plan_pipeline(const ModelConfig& model,
                                                   const ParallelConfig& parallel);
// Stages that each pipeline rank holds (virtual pipeline stages); 1 without such options.
[[nodiscard]] std::int64_t num_pipeline_chunks(const ModelConfig& model,
                                               const ParallelConfig& parallel);
// The numbers of --pipeline-schedule-costs: forward, backward for input, weight gradients, sending;
// none where it is not given. Not four, one of the first three not above 0, the last below 0:
// kConfig.
[[nodiscard]] std::vector<double> schedule_costs(const ParallelConfig& parallel);
// Equally many layers on each of `num_stages`; kConfig when they do not divide.
[[nodiscard]] std::vector<StagePlan> equal_stages(const ModelConfig& model,
                                                  std::int64_t num_stages);
// One stage that holds everything.
[[nodiscard]] StagePlan whole_model(const ModelConfig& model);

// The stages of --pipeline-model-parallel-layout, e.g. "Et*3|(tt|)*2,m|L": E embedding, t decoder
// layer, m extra prediction layer, L loss, | the end of a stage; (..)*n and x*n repeat, commas and
// spaces part nothing. Checks the language and that E comes first, L last, each once, and m behind
// all t in one stage; not the numbers of layers and stages. Wrong text: kConfig.
[[nodiscard]] std::vector<StagePlan> parse_pipeline_layout(std::string_view text);

}  // namespace pentatron::config
