// SPDX-License-Identifier: Apache-2.0
// One loss, over processes: data parallel, context parallel and tensor x pipeline parallel worlds
// of gloo ranks equal one process in fp64.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "pentatron/base/temp_folder.h"
#include "pentatron/comm/launch.h"
#include "tests/parallel/gloo_cases.h"

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
