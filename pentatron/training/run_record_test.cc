// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/run_record.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "pentatron/training/test_support.h"

namespace pentatron::training {
namespace {

using testing_support::tiny_config;

TEST(RunRecord, TellsOptionsStagesAndAStepOfTheSchedule) {
  const config::RunConfig config = tiny_config({.pp = 2}, [](config::RunConfig& c) {
    c.training.micro_batch_size = 1;
    c.training.global_batch_size = 4;
  });
  const nlohmann::json record = run_record(config, 2, Device("cpu"));
  EXPECT_EQ(record["train_iters"], 20);
  EXPECT_EQ(record["options"]["num_layers"], "2");
  EXPECT_EQ(record["options"]["pipeline_model_parallel_size"], "2");
  const nlohmann::json& layout = record["layout"];
  EXPECT_EQ(layout["world_size"], 2);
  EXPECT_EQ(layout["pipeline"], 2);
  EXPECT_EQ(layout["num_micro_batches"], 4);
  EXPECT_EQ(layout["device"], "cpu");
  ASSERT_EQ(layout["stages"].size(), 2U);
  EXPECT_EQ(
      layout["stages"][0],
      nlohmann::json::parse(R"({"embedding":true,"first_layer":0,"end_layer":1,"loss":false})"));
  EXPECT_EQ(layout["stages"][1]["loss"], true);
  const nlohmann::json& spans = layout["schedule"]["spans"];
  ASSERT_EQ(spans.size(), 2U);
  EXPECT_EQ(spans[0].size(), 8U) << "forward and backward of four micro-batches";
  EXPECT_EQ(spans[0][0], nlohmann::json::parse(R"(["F",0,0,0.0,1.0])"));
  // 1F1B with backward twice as long: the second rank waits for one forward and one backward.
  EXPECT_EQ(layout["schedule"]["total_time"], 15);
  EXPECT_NEAR(layout["schedule"]["bubble_share"], 0.2, 1e-4);
}

TEST(RunRecord, StaysShortWhateverTheStep) {
  const config::RunConfig config = tiny_config({.pp = 2}, [](config::RunConfig& c) {
    c.training.micro_batch_size = 1;
    c.training.global_batch_size = 4096;
  });
  const nlohmann::json record = run_record(config, 2, Device("cpu"));
  EXPECT_FALSE(record["layout"].contains("schedule"));
  // What a reader of the file takes as a line (monitor/metrics_tail.h).
  EXPECT_LT(record.dump().size(), std::size_t{1} << 17);
  EXPECT_FALSE(run_record(tiny_config(), 1, Device("cpu"))["layout"].contains("schedule"));
}

}  // namespace
}  // namespace pentatron::training
