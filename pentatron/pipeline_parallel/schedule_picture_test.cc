// SPDX-License-Identifier: Apache-2.0
#include "pentatron/pipeline_parallel/schedule_picture.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "pentatron/base/error.h"

namespace pentatron::pipeline_parallel {
namespace {

PlayedSchedule played(const char* name, const ScheduleShape& shape) {
  return play({.name = name}, shape);
}

// `virtual_stages` 0: one stage a rank.
config::ParallelConfig pipeline(std::int64_t ranks, std::int64_t virtual_stages = 0) {
  config::ParallelConfig parallel;
  parallel.pipeline_model_parallel_size = ranks;
  parallel.num_virtual_stages_per_pipeline_rank = virtual_stages;
  return parallel;
}

TEST(SchedulePicture, DrawsEveryActionInItsPlace) {
  EXPECT_EQ(terminal_picture(played("1f1b", {2, 2}), {.width = 80, .colour = false}),
            "time     0              5\n"
            "rank 0   F0 F1 ......B0    ...B1    \n"
            "rank 1   ...F0 B0    F1 B1    ......\n");
}

TEST(SchedulePicture, WeightGradientsAndChunksHaveNames) {
  const std::string split =
      terminal_picture(played("zb-h1", {2, 2}), {.width = 200, .colour = false});
  EXPECT_NE(split.find("B0 W0"), std::string::npos) << split;
  const std::string chunks =
      terminal_picture(played("1f1b", {2, 2, 2}), {.width = 400, .colour = false});
  for (const char* label : {"F0a", "F1b", "B0b", "B1a"}) {
    EXPECT_NE(chunks.find(label), std::string::npos) << label << "\n" << chunks;
  }
}

TEST(SchedulePicture, FitsTheWidth) {
  for (const int width : {20, 40, 80}) {
    for (const bool colour : {false, true}) {
      std::string text = terminal_picture(played("zb-h1", {4, 32}), {width, colour});
      for (std::size_t at = text.find('\033'); at != std::string::npos; at = text.find('\033')) {
        text.erase(at, text.find('m', at) - at + 1);
      }
      for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = text.find('\n', at);
        EXPECT_LE(end - at, static_cast<std::size_t>(width)) << text;
        at = end + 1;
      }
    }
  }
}

TEST(SchedulePicture, ColourIsAskedFor) {
  const PlayedSchedule schedule = played("gpipe", {2, 2});
  EXPECT_NE(terminal_picture(schedule, {.colour = true}).find("\033["), std::string::npos);
  EXPECT_EQ(terminal_picture(schedule, {.colour = false}).find('\033'), std::string::npos);
}

TEST(SchedulePicture, SvgHasOneBoxAnAction) {
  const std::string svg = svg_picture(played("zb-h1", {3, 5}));
  EXPECT_TRUE(svg.starts_with("<svg xmlns="));
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  std::size_t boxes = 0;
  for (std::size_t at = svg.find("<title>"); at != std::string::npos;
       at = svg.find("<title>", at + 1)) {
    ++boxes;
  }
  EXPECT_EQ(boxes, 3U * 3 * 5);
}

TEST(CompareSchedules, TablesAndJsonTellTheSame) {
  const ScheduleCase asked = schedule_case(pipeline(4), 0, 8);
  const std::vector<PlayedSchedule> all = play_all(asked.choice, asked.shape);
  ASSERT_EQ(all.size(), std::size(kScheduleNames));
  for (const PlayedSchedule& schedule : all) {
    EXPECT_TRUE(schedule.sound()) << verdict(schedule);
    const nlohmann::json json = to_json(schedule);
    EXPECT_EQ(json.at("schedule"), schedule.choice.name);
    EXPECT_EQ(json.at("ranks").size(), 4U);
    EXPECT_EQ(json.at("total_time"), schedule.result.total_time);
    EXPECT_EQ(json.at("ranks")[3].at("actions").size(), schedule.result.spans[3].size());
    EXPECT_NE(comparison_table(all).find("\n" + schedule.choice.name + " "), std::string::npos);
  }
  EXPECT_EQ(all[0].result.total_time, 3 * (8 + 3));
  EXPECT_EQ(all[2].result.total_time, 3 * 8 + 3);
  EXPECT_EQ(headline(all[2]), "zb-h1: 4 ranks, 4 stages, 8 micro-batches, time 27, bubble 11.1%");
  EXPECT_NE(rank_table(all[0]).find("\n   1    27.3%           3                  3\n"),
            std::string::npos)
      << rank_table(all[0]);
  EXPECT_EQ(verdict(all[0]), "no deadlock: all " + std::to_string(all[0].num_actions()) +
                                 " actions run, every message has its receiver");
}

TEST(CompareSchedules, WhatDoesNotSuitIsSaidInTheTable) {
  const ScheduleCase asked = schedule_case(pipeline(2, 2), 0, 3);
  const std::vector<PlayedSchedule> all = play_all(asked.choice, asked.shape);
  EXPECT_NE(all[0].refused.find("micro-batches in groups"), std::string::npos) << all[0].refused;
  EXPECT_TRUE(all[1].sound()) << "GPipe takes any number";
  EXPECT_NE(all[2].refused.find("one stage a rank"), std::string::npos);
  EXPECT_NE(comparison_table(all).find(all[2].refused), std::string::npos);
  EXPECT_EQ(summary(all[2]).at("sound"), false);
}

// A stage's share of the costs is that of its layers; the parts of virtual stages are as much
// shorter as they are more.
TEST(CompareSchedules, StagesCostWhatTheyHold) {
  config::ParallelConfig layout = pipeline(2);
  layout.pipeline_model_parallel_layout = "Et*3|tL";
  const ScheduleCase uneven = schedule_case(layout, 0, 4);
  EXPECT_EQ(uneven.choice.costs.stage_factor, (std::vector<double>{1.5, 0.5}));
  const ScheduleCase chunks = schedule_case(pipeline(2, 2), 8, 4);
  EXPECT_EQ(chunks.choice.costs.stage_factor, (std::vector<double>{0.5, 0.5, 0.5, 0.5}));
  EXPECT_EQ(chunks.shape.num_chunks, 2);
  EXPECT_EQ(play(chunks.choice, chunks.shape).result.busy_time[0], 3 * 4);
  config::ParallelConfig first = pipeline(2);
  first.decoder_first_pipeline_num_layers = 1;
  EXPECT_THROW((void)schedule_case(first, 0, 4), Error) << "of how many layers?";
  EXPECT_THROW((void)schedule_case(pipeline(2), 3, 4), Error);
}

}  // namespace
}  // namespace pentatron::pipeline_parallel
