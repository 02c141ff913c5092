// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "pentatron/pipeline_parallel/make_schedule.h"

// What `pentatron plan_schedule` knows of schedules: played, without a model.
namespace pentatron::pipeline_parallel {

// What the options of a layout ask for, without a model.
struct ScheduleCase {
  ScheduleChoice choice = {};
  ScheduleShape shape = {};
};
// num_layers 0: as many as the layout's text has, else one a stage. Options that do not fit:
// kConfig.
[[nodiscard]] ScheduleCase schedule_case(const config::ParallelConfig& parallel,
                                         std::int64_t num_layers, std::int64_t num_micro_batches);

// A schedule played for the costs of its choice.
struct PlayedSchedule {
  ScheduleChoice choice = {};
  ScheduleShape shape = {};
  std::string refused = {};  // why there are no lists: the shape does not suit the schedule
  std::vector<ActionList> lists = {};
  SimulationResult result = {};

  [[nodiscard]] bool sound() const { return refused.empty() && result.problem.empty(); }
  [[nodiscard]] std::size_t num_actions() const;  // of all ranks, messages too
};

// A shape that the schedule does not take is told in `refused`. choice.costs.stage_factor may be
// empty, else has one factor a stage of the shape.
[[nodiscard]] PlayedSchedule play(const ScheduleChoice& choice, const ScheduleShape& shape);
// Every schedule by name on one shape and costs, in the order of kScheduleNames.
[[nodiscard]] std::vector<PlayedSchedule> play_all(const ScheduleChoice& choice,
                                                   const ScheduleShape& shape);

// One line: name, sizes, time of the step in the unit of the costs, bubble share.
[[nodiscard]] std::string headline(const PlayedSchedule& schedule);
// Per rank: share of the step that it waits, forwards in flight and activations kept at most.
[[nodiscard]] std::string rank_table(const PlayedSchedule& schedule);
// One line a schedule: time of the step, bubble share, activations of the first rank and of the
// rank that keeps most; or why it does not run.
[[nodiscard]] std::string comparison_table(const std::vector<PlayedSchedule>& schedules);
// Sound, or what is wrong with the lists.
[[nodiscard]] std::string verdict(const PlayedSchedule& schedule);

// {"schedule", "sound", "total_time", "bubble_share", "peak_activations": [..]}, or "problem".
[[nodiscard]] nlohmann::json summary(const PlayedSchedule& schedule);
// The summary, what was asked for, and "ranks": [{"busy_time", .., "actions": [{"kind",
// "micro_batch", "chunk", "begin", "end"}]}]; times in the unit of the costs.
[[nodiscard]] nlohmann::json to_json(const PlayedSchedule& schedule);

}  // namespace pentatron::pipeline_parallel
