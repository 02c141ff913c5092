// SPDX-License-Identifier: Apache-2.0
#include "pentatron/bench/train.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "pentatron/base/error.h"
#include "pentatron/base/test_support.h"
#include "pentatron/bench/ceilings.h"
#include "pentatron/bench/train_bound.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/training/dry_run/dry_run.h"

namespace pentatron::bench {
namespace {

training::dry_run::DryRun plan_of(const Workload& workload) {
  return training::dry_run::plan_of(options_of(run_words(workload, 1, "")));
}

Workload by_id(const std::vector<Workload>& all, const std::string& id) {
  for (const Workload& workload : all) {
    if (workload.id == id) return workload;
  }
  ADD_FAILURE() << "no workload " << id;
  return {};
}

// The options are the program's own, and the sizes those of the published models.
TEST(Workloads, AreWhatTheySay) {
  for (const std::int64_t gibibytes : {80, 141}) {
    const std::vector<Workload> all = workloads(Device("cuda:0"), gibibytes << 30);
    const auto plan = [&](const std::string& id) { return plan_of(by_id(all, id)); };
    for (const Workload& workload : all) {
      EXPECT_NO_THROW((void)plan_of(workload)) << workload.id;
      EXPECT_LT(plan_of(workload).asked.memory.total(), gibibytes << 30) << workload.id;
    }
    EXPECT_NEAR(static_cast<double>(plan("S1").num_parameters), 2.80e9, 0.01e9);
    EXPECT_NEAR(static_cast<double>(plan("S3").num_parameters), 1.54e9, 0.01e9);
    EXPECT_NEAR(static_cast<double>(plan("S4").num_parameters), 124.4e6, 0.1e6);
    EXPECT_NEAR(static_cast<double>(plan("S4-1558M").num_parameters), 1558e6, 2e6);
    // 15.23 GFLOP a token (8 layers of 218.1 M, head 128256 x 4096, causal half), of 65,536.
    EXPECT_NEAR(plan("S1").step_flops / 65536, 15.23e9, 0.01e9);
    EXPECT_NEAR(plan("S4").step_flops / 524288, 0.798e9, 0.002e9);
    for (const char* id : {"S4", "S4-1558M"}) {
      const config::RunConfig config = plan(id).config;
      EXPECT_EQ(config.training.global_batch_size * config.model.seq_length,
                std::string(id) == "S4" ? 524288 : 131072);
    }
    EXPECT_EQ(plan("S3").config.training.global_batch_size * 1024, 524288);
    EXPECT_EQ(plan("S2-delayed").config.model.fp8_recipe, "delayed");
    EXPECT_EQ(plan("S2-blockwise").config.model.fp8_recipe, "blockwise");
    EXPECT_TRUE(plan("S2-head").config.model.fp8_output_proj);
  }
}

// Llama 3 8B's width, one sample of 8,192: U = 8192 x 4096 x 2 bytes = 67.1 MB.
TEST(TrainBound, BytesByHand) {
  const std::vector<Workload> all = workloads(Device("cuda:0"), std::int64_t{80} << 30);
  constexpr double kU = 8192.0 * 4096 * 2;
  // A layer: two additions with norm, 4 U each way; rotary embedding of 1.25 U, read and written
  // each way; SwiGLU of 3.5 U, 3 and 5 times.
  const double layer = 2 * (4 + 4) * kU + 4 * 1.25 * kU + 8 * 3.5 * kU;
  const double loss = 2 * 8192.0 * 128256 * 2;
  // Final norm, embedding and its gradient, added into fp32.
  const double ends = (2 + 3 + 2 + 1) * kU + 2 * 2 * kU;
  const TrainBytes wide = train_bytes(plan_of(by_id(all, "S1")).config);
  EXPECT_NEAR(wide.micro_batch, 8 * layer + loss + ends, 1);
  // 34 bytes: gradient read and zeroed, main weight and two moments read and written, bf16 written.
  EXPECT_NEAR(wide.optimizer, 34 * 2.80e9, 0.01 * 34 * 2.80e9);
  // Inputs 1 + 1 + 1 + 3.5 U, output gradients 1.5 + 1 + 7 + 1 U, of half as many elements as
  // bytes. Those of proj's input and of all gradients but fc1's are read twice for their own scale.
  const double casts = (6.5 + 10.5) * kU / 2, twice = (1 + 3.5) * kU / 2;
  EXPECT_NEAR(train_bytes(plan_of(by_id(all, "S2")).config).micro_batch - wide.micro_batch,
              8 * (casts * 4 + twice * 2), 1);
  EXPECT_NEAR(train_bytes(plan_of(by_id(all, "S2-delayed")).config).micro_batch - wide.micro_batch,
              8 * casts * 4, 1);
  EXPECT_EQ(train_bytes(plan_of(by_id(all, "S2-blockwise")).config).micro_batch,
            train_bytes(plan_of(by_id(all, "S2-delayed")).config).micro_batch);
}

TEST(TrainBound, IsMadeOfMeasuredPieces) {
  const Workload small = workloads(kCpu, 0).front();
  const config::RunConfig config = plan_of(small).config;
  const TrainBound bound = train_bound(kCpu, config, 1e10);
  EXPECT_NEAR(bound.optimizer, train_bytes(config).optimizer / 1e10, 1e-12);
  EXPECT_NEAR(bound.memory, 2 * train_bytes(config).micro_batch / 1e10, 1e-12);
  EXPECT_GT(bound.layer_products, 0);
  EXPECT_GT(bound.head_products, 0);
  EXPECT_GT(bound.attention, 0);
  EXPECT_NEAR(
      bound.total(),
      bound.layer_products + bound.head_products + bound.attention + bound.memory + bound.optimizer,
      1e-12);
}

TEST(Ceilings, FlopsByHand) {
  EXPECT_EQ((ProductShape{"", 3, 5, 7}.flops()), 2.0 * 3 * 5 * 7);
  // Two products of 2 x 16 x 16 x 8 operations a head, half of them masked.
  EXPECT_EQ((AttentionShape{"", 2, 16, 4, 2, 8}.forward_flops()),
            2.0 * 4 * (2 * 2 * 16 * 16 * 8) / 2);
}

class ReadResult : public testing::Test {
 protected:
  ReadResult() { std::filesystem::create_directories(folder_); }
  ~ReadResult() override { std::filesystem::remove_all(folder_); }
  void write_metrics(const std::vector<double>& rates) const {
    std::ofstream file(metrics());
    for (std::size_t i = 0; i < rates.size(); ++i) {
      file << nlohmann::json{{"kind", "train"},
                             {"iteration", i + 1},
                             {"lm_loss", 9.0 - 0.5 * static_cast<double>(i)},
                             {"tokens_per_second", rates[i]}}
           << "\n";
    }
  }
  [[nodiscard]] std::filesystem::path metrics() const { return folder_ / "metrics.jsonl"; }

  std::filesystem::path folder_ = std::filesystem::temp_directory_path() /
                                  ("pentatron-bench-test-" + std::to_string(::getpid()));
};

// The median of the steps behind the warm-up, which are 2,048 tokens each.
TEST_F(ReadResult, TakesTheMedianBehindTheWarmUp) {
  Workload small = workloads(kCpu, 0).front();
  small.warm_up = 2;
  small.steps = 3;
  write_metrics({10, 20, 1024, 2048, 4096});
  const TrainResult result =
      read_result(metrics(),
                  "[Rank 0] (after 5 iterations) memory (MB) | allocated: 1.00 | max allocated: "
                  "2.50 | reserved: 3.00 | max reserved: 4.00\n",
                  small);
  EXPECT_DOUBLE_EQ(result.step_seconds, 1.0);
  EXPECT_DOUBLE_EQ(result.fastest, 0.5);
  EXPECT_DOUBLE_EQ(result.slowest, 2.0);
  EXPECT_DOUBLE_EQ(result.tokens_per_second, 2048);
  EXPECT_DOUBLE_EQ(result.flops_per_second, plan_of(small).step_flops);
  EXPECT_DOUBLE_EQ(result.first_loss, 9.0);
  EXPECT_EQ(result.peak_memory, 5 << 19);
  EXPECT_EQ(result.planned_memory, plan_of(small).asked.memory.total());
  EXPECT_TRUE(std::isnan(result.joules_per_token));
  EXPECT_EQ(read_result(metrics(), "", small).peak_memory, 0);
  small.steps = 4;
  expect_error(ErrorKind::kData, "tells of 5 steps",
               [&] { (void)read_result(metrics(), "", small); });
}

TEST(MeasureTraining, RefusesUnknownWorkloads) {
  nlohmann::json out;
  expect_error(ErrorKind::kConfig, "--workload S9: on this device there are C1", [&] {
    (void)measure_training({.device = kCpu, .ids = {"S9"}, .copy_bytes_per_second = 1e10}, out);
  });
}

}  // namespace
}  // namespace pentatron::bench
