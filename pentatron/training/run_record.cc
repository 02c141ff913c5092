// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/run_record.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "pentatron/config/batch_schedule.h"
#include "pentatron/config/pipeline_layout.h"
#include "pentatron/config/print.h"
#include "pentatron/pipeline_parallel/compare_schedules.h"

namespace pentatron::training {
namespace {

using Json = nlohmann::json;
using pipeline_parallel::ActionKind;

const char* letter_of(ActionKind kind) {
  if (kind == ActionKind::kForward) return "F";
  return kind == ActionKind::kBackward ? "B" : "W";
}

// Four digits: a picture shows no more, and the record stays short.
double rounded(double value) { return std::round(value * 1e4) / 1e4; }

Json schedule_of(const config::RunConfig& config, std::int64_t num_micro_batches,
                 std::int64_t num_chunks) {
  constexpr std::int64_t kMaxActions = 2000;
  const auto& parallel = config.parallel;
  const std::int64_t ranks = parallel.pipeline_model_parallel_size;
  const std::int64_t actions = 3 * ranks * num_chunks * num_micro_batches;
  if (ranks < 2 || actions > kMaxActions) return {};
  const pipeline_parallel::PlayedSchedule played = pipeline_parallel::play(
      pipeline_parallel::schedule_choice(config.model, parallel),
      {.num_ranks = static_cast<int>(ranks),
       .num_micro_batches = static_cast<int>(num_micro_batches),
       .num_chunks = static_cast<int>(num_chunks),
       .group_size = static_cast<int>(parallel.microbatch_group_size_per_vp_stage)});
  if (!played.sound()) return {};
  Json lanes = Json::array();
  for (const auto& spans : played.result.spans) {
    Json lane = Json::array();
    for (const pipeline_parallel::ActionSpan& span : spans) {
      lane.push_back({letter_of(span.action.kind), span.action.micro_batch, span.action.chunk,
                      rounded(span.begin), rounded(span.end)});
    }
    lanes.push_back(std::move(lane));
  }
  return {{"name", parallel.pipeline_schedule},
          {"total_time", rounded(played.result.total_time)},
          {"bubble_share", rounded(played.result.bubble_share)},
          {"spans", std::move(lanes)}};
}

Json layout_of(const config::RunConfig& config, std::int64_t world_size, Device device) {
  const auto& parallel = config.parallel;
  const std::int64_t in_a_step =
      config.training.micro_batch_size * std::max<std::int64_t>(1, parallel.data_parallel_size);
  const std::int64_t num_micro_batches =
      std::max<std::int64_t>(1, config::running_batch_size(config) / in_a_step);
  const std::int64_t num_chunks = config::num_pipeline_chunks(config.model, parallel);
  Json stages = Json::array();
  for (const config::StagePlan& plan : config::plan_pipeline(config.model, parallel)) {
    stages.push_back({{"embedding", plan.embedding},
                      {"first_layer", plan.first_layer},
                      {"end_layer", plan.end_layer},
                      {"loss", plan.loss}});
  }
  Json layout{{"world_size", world_size},
              {"tensor", parallel.tensor_model_parallel_size},
              {"pipeline", parallel.pipeline_model_parallel_size},
              {"virtual_pipeline", num_chunks},
              {"context", parallel.context_parallel_size},
              {"expert", parallel.expert_model_parallel_size},
              {"data", parallel.data_parallel_size},
              {"num_micro_batches", num_micro_batches},
              {"device", device.is_cpu() ? "cpu" : "cuda"},
              {"stages", std::move(stages)}};
  if (Json schedule = schedule_of(config, num_micro_batches, num_chunks); !schedule.is_null()) {
    layout["schedule"] = std::move(schedule);
  }
  return layout;
}

}  // namespace

Json run_record(const config::RunConfig& config, std::int64_t world_size, Device device) {
  Json options = Json::object();
  for (const auto& [name, value] : config::argument_list(config)) options[name] = value;
  return {{"train_iters", config.training.train_iters},
          {"seq_length", config.model.seq_length},
          {"options", std::move(options)},
          {"layout", layout_of(config, world_size, device)}};
}

}  // namespace pentatron::training
