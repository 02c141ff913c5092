// SPDX-License-Identifier: Apache-2.0
// One loss, over processes: data parallel, context parallel and tensor x pipeline parallel worlds
// of gloo ranks equal one process in fp64.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>

#include "pentatron/base/temp_folder.h"
#include "pentatron/comm/launch.h"
#include "tests/parallel/gloo_cases.h"
#include "tests/parallel/layout_table.h"

namespace pentatron::parity {
namespace {

constexpr double kTolerance = 1e-12;
constexpr double kTrainedTolerance = 1e-11;  // see parity_test.cc

const Outcome& reference_of(const CaseOptions& options) {
  static std::map<std::string, Outcome> cache;
  const std::string key = options.optimizer + (options.model == ModelKind::kGpt2 ? "g" : "l");
  auto found = cache.find(key);
  if (found == cache.end()) {
    found = cache.emplace(key, run_case(options, Layout{.micro_batch_size = 8})).first;
  }
  return found->second;
}

void expect_world_equals_one_process(int world_size) {
  const TempFolder folder;
  const std::filesystem::path worker =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() / "parity_worker";
  ASSERT_EQ(comm::launch({.nproc_per_node = world_size,
                          .command = {worker.string(), folder.path().string()}}),
            0);
  for (const GlooCase& gloo_case : gloo_cases(world_size)) {
    ASSERT_EQ(gloo_case.layout.world_size(), world_size) << gloo_case.name;
    for (int rank = 0; rank < world_size; ++rank) {
      const Outcome outcome = read_outcome(
          folder.path() / (gloo_case.name + ".rank" + std::to_string(rank) + ".safetensors"));
      ASSERT_EQ(outcome.losses.size(), static_cast<std::size_t>(gloo_case.options.steps));
      EXPECT_EQ(difference(reference_of(gloo_case.options), outcome, kTolerance, kTrainedTolerance),
                "")
          << gloo_case.name << " on rank " << rank;
    }
  }
}

TEST(GlooParity, DataAndContextParallelInTwoProcesses) { expect_world_equals_one_process(2); }
TEST(GlooParity, TensorAndPipelineParallelInFourProcesses) { expect_world_equals_one_process(4); }

// What two GPUs run (tests/gpu/training_gpu_test.cc), on CPUs: ranks are threads, then processes.
TEST(LayoutTable, TwoRanksOnThreadsEqualOne) {
  const std::vector<TableCase> table = table_of_two_ranks(Device("cpu"));
  std::vector<std::string> problems[2];
  comm::run_threads({.world_size = 2, .threads_per_rank = 1}, [&](comm::Backend& backend) {
    problems[backend.rank()] = table_problems(table, backend);
  });
  for (const auto& of_rank : problems) {
    for (const std::string& problem : of_rank) ADD_FAILURE() << problem;
  }
}

TEST(LayoutTable, TwoGlooProcessesEqualOne) {
  const std::filesystem::path worker =
      std::filesystem::read_symlink("/proc/self/exe").parent_path() / "parity_worker";
  EXPECT_EQ(comm::launch({.nproc_per_node = 2, .command = {worker.string(), "--table"}}), 0);
}

// Every pair of what two ranks allow is in it, and it is no empty table.
TEST(LayoutTable, HasEveryAxisOfTwoRanks) {
  const std::vector<TableCase> table = table_of_two_ranks(Device("cpu"));
  std::set<std::string> names;
  for (const TableCase& c : table) {
    EXPECT_EQ(c.layout.world_size(), 2) << c.name;
    EXPECT_TRUE(names.insert(c.name).second) << c.name;
  }
  for (const char* axis : {"TP2", "SP", "PP2", "VPP2", "ZB", "DP2", "ZeRO1", "ZeRO2", "ZeRO3",
                           "Overlap", "CP2ring", "CP2gather", "CP2a2a"}) {
    for (const char* kind : {"Gpt2_fp32_", "Gpt2_bf16_", "Llama_fp32_", "Llama_bf16_"}) {
      EXPECT_TRUE(names.contains(std::string(kind) + axis)) << kind << axis;
    }
    for (const char* other : {"Full", "Core", "Modules", "Norms", "MBS2", "MBS4"}) {
      for (const char* precision : {"_fp32_", "_bf16_"}) {
        const std::string pair = std::string(precision) + axis + "_" + other;
        const auto holds = [&](const char* kind) { return names.contains(kind + pair); };
        // Virtual stages need as many micro-batches as there are ranks; four samples each are two.
        EXPECT_NE(holds("Gpt2"), holds("Llama")) << pair;
      }
    }
  }
  EXPECT_GT(table.size(), 200U);
}

// The comparison notices gradients that are not summed, in either precision.
TEST(LayoutTable, AFaultIsSeen) {
  std::vector<TableCase> table = table_of_two_ranks(Device("cpu"));
  std::erase_if(table, [](const TableCase& c) { return !c.name.ends_with("_DP2"); });
  ASSERT_EQ(table.size(), 4U);
  comm::run_threads({.world_size = 2, .threads_per_rank = 1}, [&](comm::Backend& real) {
    comm::testing_support::FaultyBackend backend(
        real, {.collective = comm::testing_support::Collective::kAllReduce, .group = "dp:"});
    EXPECT_EQ(table_problems(table, backend).size(), table.size());
  });
}

// The comparison itself: a value that is off in the last digits is seen, in the file's form too.
TEST(GlooParity, ADifferenceInTheFileIsSeen) {
  const TempFolder folder;
  const Outcome& reference = reference_of({.model = ModelKind::kLlama});
  Outcome changed = reference;
  for (auto* tensors : {&changed.first_gradients, &changed.first_weights, &changed.weights}) {
    const Outcome before = changed;
    Tensor& last = tensors->rbegin()->second;
    last = last.mul(1 + 1e-10);
    write_outcome(folder.path() / "changed.safetensors", changed);
    EXPECT_NE(difference(reference, read_outcome(folder.path() / "changed.safetensors"), kTolerance,
                         kTrainedTolerance),
              "");
    changed = before;
  }
  write_outcome(folder.path() / "same.safetensors", changed);
  EXPECT_EQ(difference(reference, read_outcome(folder.path() / "same.safetensors"), 0.0), "");
}

}  // namespace
}  // namespace pentatron::parity
