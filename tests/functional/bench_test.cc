// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>

#include "tests/functional/tiny_run.h"

// `pentatron bench` on a CPU: small shapes, the same tables.
namespace pentatron::functional {

TEST(Bench, MeasuresCeilingsAndATraining) {
  const std::filesystem::path file = new_folder() / "bench.json";
  // Timed work takes longer on a busy machine.
  const ProgramResult result = run_program(
      {.words = {"bench", "train", "--device", "cpu", "--steps", "2", "--json", file.string()},
       .timeout = std::chrono::minutes(4)});
  ASSERT_TRUE(result.ok()) << result.describe();
  EXPECT_EQ(count(result.out, "\nceilings "), 1U) << result.out;
  EXPECT_EQ(count(result.out, "\nkernels "), 0U) << result.out;
  EXPECT_EQ(count(result.out, "\ntraining "), 1U) << result.out;
  const nlohmann::json json = nlohmann::json::parse(read_file(file));
  EXPECT_EQ(json.at("machine").at("device"), "cpu");
  EXPECT_GE(json.at("ceilings").size(), 5U);
  EXPECT_FALSE(json.contains("kernels"));
  ASSERT_EQ(json.at("train").size(), 1U);
  const nlohmann::json& run = json.at("train").at(0);
  EXPECT_EQ(run.at("id"), "C1");
  EXPECT_EQ(run.at("steps"), 2);
  EXPECT_GT(run.at("tokens_per_second").get<double>(), 1);
  EXPECT_GT(run.at("flops_per_second").get<double>(), 1e6);
  EXPECT_GT(run.at("share_of_bound").get<double>(), 0.01);
  EXPECT_NEAR(run.at("first_loss").get<double>(), std::log(4096), 1);
  EXPECT_TRUE(run.at("watts").is_null());
  EXPECT_GT(run.at("peak_memory_bytes").get<double>(), 1e7);
}

TEST(Bench, RefusesWhatItDoesNotKnow) {
  const ProgramResult part = call({"bench", "kernel", "kernels"});
  EXPECT_FALSE(part.ok());
  EXPECT_NE(part.err.find("'kernel' is no part"), std::string::npos) << part.describe();
  const ProgramResult workload = call({"bench", "kernels", "--workload", "S1"});
  EXPECT_FALSE(workload.ok());
  EXPECT_NE(workload.err.find("--workload names trainings"), std::string::npos)
      << workload.describe();
}

}  // namespace pentatron::functional
