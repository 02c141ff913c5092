// SPDX-License-Identifier: Apache-2.0
#include "pentatron/pipeline_parallel/compare_schedules.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "pentatron/base/error.h"
#include "pentatron/config/pipeline_layout.h"

namespace pentatron::pipeline_parallel {

ScheduleCase schedule_case(const config::ParallelConfig& parallel, std::int64_t num_layers,
                           std::int64_t num_micro_batches) {
  config::ModelConfig model;
  model.num_layers = num_layers;
  if (num_layers == 0 && !parallel.pipeline_model_parallel_layout.empty()) {
    const std::vector<config::StagePlan> plans =
        config::parse_pipeline_layout(parallel.pipeline_model_parallel_layout);
    model.num_layers = plans.back().end_layer;
  } else if (num_layers == 0) {
    PENTATRON_CHECK(parallel.decoder_first_pipeline_num_layers == 0 &&
                        parallel.decoder_last_pipeline_num_layers == 0 &&
                        parallel.num_layers_per_virtual_pipeline_stage == 0 &&
                        !parallel.account_for_embedding_in_pipeline_split &&
                        !parallel.account_for_loss_in_pipeline_split,
                    kConfig, "options that split layers among stages need --num-layers");
    model.num_layers = parallel.pipeline_model_parallel_size *
                       std::max<std::int64_t>(1, parallel.num_virtual_stages_per_pipeline_rank);
  }
  return {.choice = schedule_choice(model, parallel),
          .shape = {.num_ranks = static_cast<int>(parallel.pipeline_model_parallel_size),
                    .num_micro_batches = static_cast<int>(num_micro_batches),
                    .num_chunks = static_cast<int>(config::num_pipeline_chunks(model, parallel)),
                    .group_size = static_cast<int>(parallel.microbatch_group_size_per_vp_stage)}};
}

std::size_t PlayedSchedule::num_actions() const {
  std::size_t count = 0;
  for (const ActionList& list : lists) count += list.size();
  return count;
}

PlayedSchedule play(const ScheduleChoice& choice, const ScheduleShape& shape) {
  PlayedSchedule played{.choice = choice, .shape = shape};
  try {
    played.lists = make_schedule(choice, shape);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kConfig) throw;
    played.refused = error.what();
    return played;
  }
  played.result = simulate(played.lists, shape, choice.costs);
  return played;
}

std::vector<PlayedSchedule> play_all(const ScheduleChoice& choice, const ScheduleShape& shape) {
  std::vector<PlayedSchedule> all;
  for (const std::string_view name : kScheduleNames) {
    ScheduleChoice one = choice;
    one.name = name;
    all.push_back(play(one, shape));
  }
  return all;
}

std::string headline(const PlayedSchedule& schedule) {
  const ScheduleShape& shape = schedule.shape;
  return fmt::format("{}: {} ranks, {} stages, {} micro-batches, time {:.6g}, bubble {:.1f}%",
                     schedule.choice.name, shape.num_ranks, shape.num_ranks * shape.num_chunks,
                     shape.num_micro_batches, schedule.result.total_time,
                     100 * schedule.result.bubble_share);
}

std::string rank_table(const PlayedSchedule& schedule) {
  const SimulationResult& result = schedule.result;
  std::string text = "rank   bubble   in flight   activations kept\n";
  for (std::size_t r = 0; r < result.busy_time.size(); ++r) {
    const double waits = 1 - result.busy_time[r] / result.total_time;
    text += fmt::format("{:>4}  {:>6.1f}%  {:>10}  {:>17}\n", r, 100 * waits,
                        result.peak_in_flight[r], result.peak_activations[r]);
  }
  return text;
}

std::string comparison_table(const std::vector<PlayedSchedule>& schedules) {
  std::string text = "schedule      time   bubble   activations kept: rank 0, most\n";
  for (const PlayedSchedule& schedule : schedules) {
    const SimulationResult& result = schedule.result;
    if (!schedule.sound()) {
      text += fmt::format("{:<10}  {}\n", schedule.choice.name, verdict(schedule));
      continue;
    }
    const std::vector<int>& kept = result.peak_activations;
    text += fmt::format("{:<10}  {:>6.5g}  {:>6.1f}%  {:>24}  {:>4}\n", schedule.choice.name,
                        result.total_time, 100 * result.bubble_share, kept.front(),
                        *std::max_element(kept.begin(), kept.end()));
  }
  return text;
}

std::string verdict(const PlayedSchedule& schedule) {
  if (!schedule.refused.empty()) return schedule.refused;
  if (!schedule.result.problem.empty()) return schedule.result.problem;
  return fmt::format("no deadlock: all {} actions run, every message has its receiver",
                     schedule.num_actions());
}

nlohmann::json summary(const PlayedSchedule& schedule) {
  nlohmann::json json = {{"schedule", schedule.choice.name}, {"sound", schedule.sound()}};
  if (!schedule.sound()) {
    json["problem"] = verdict(schedule);
    return json;
  }
  json["total_time"] = schedule.result.total_time;
  json["bubble_share"] = schedule.result.bubble_share;
  json["peak_activations"] = schedule.result.peak_activations;
  return json;
}

nlohmann::json to_json(const PlayedSchedule& schedule) {
  const SimulationResult& result = schedule.result;
  const SimulationCosts& costs = schedule.choice.costs;
  nlohmann::json json = summary(schedule);
  json["num_micro_batches"] = schedule.shape.num_micro_batches;
  json["num_chunks"] = schedule.shape.num_chunks;
  json["costs"] = {{"forward", costs.forward},
                   {"backward", costs.backward},
                   {"backward_weight", costs.backward_weight},
                   {"send", costs.send},
                   {"stage_factor", costs.stage_factor}};
  json["ranks"] = nlohmann::json::array();
  for (std::size_t r = 0; r < result.spans.size(); ++r) {
    nlohmann::json actions = nlohmann::json::array();
    for (const ActionSpan& span : result.spans[r]) {
      actions.push_back({{"kind", to_string(span.action.kind)},
                         {"micro_batch", span.action.micro_batch},
                         {"chunk", span.action.chunk},
                         {"begin", span.begin},
                         {"end", span.end}});
    }
    json["ranks"].push_back({{"busy_time", result.busy_time[r]},
                             {"peak_in_flight", result.peak_in_flight[r]},
                             {"peak_activations", result.peak_activations[r]},
                             {"actions", std::move(actions)}});
  }
  return json;
}

}  // namespace pentatron::pipeline_parallel
