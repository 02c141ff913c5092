// SPDX-License-Identifier: Apache-2.0
#include "pentatron/transformer/recompute_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace pentatron::transformer {
namespace {

// Lengths of the runs of a stage's layers; 0: a layer that keeps its activations.
std::vector<int> runs(const char* method, std::int64_t count, int num_layers) {
  config::ModelConfig config;
  config.recompute_granularity = method == nullptr ? "" : "full";
  config.recompute_method = method == nullptr ? "" : method;
  config.recompute_num_layers = count;
  const RecomputePlan plan(config, num_layers);
  std::vector<int> all;
  for (int layer = 0; layer < num_layers;) {
    all.push_back(plan.run_at(layer));
    layer += std::max(1, all.back());
  }
  return all;
}

using Runs = std::vector<int>;

TEST(RecomputePlan, RunsOfLayers) {
  EXPECT_EQ(runs("uniform", 1, 4), (Runs{1, 1, 1, 1}));
  EXPECT_EQ(runs("uniform", 3, 8), (Runs{3, 3, 2}));
  EXPECT_EQ(runs("uniform", 9, 4), (Runs{4}));
  EXPECT_EQ(runs("block", 1, 3), (Runs{1, 0, 0}));
  EXPECT_EQ(runs("block", 5, 3), (Runs{1, 1, 1}));
  EXPECT_EQ(runs(nullptr, 2, 3), (Runs{0, 0, 0}));
  EXPECT_EQ(runs("uniform", 2, 0), Runs{});
}

TEST(RecomputePlan, Modules) {
  config::ModelConfig config;
  config.recompute_modules = {"mlp"};
  EXPECT_FALSE(RecomputePlan::recomputes(config, RecomputedModule::kMlp)) << "not asked for";
  config.recompute_granularity = "selective";
  EXPECT_TRUE(RecomputePlan::recomputes(config, RecomputedModule::kMlp));
  EXPECT_FALSE(RecomputePlan::recomputes(config, RecomputedModule::kCoreAttention));
  EXPECT_EQ(RecomputePlan(config, 4).run_at(0), 0);
}

}  // namespace
}  // namespace pentatron::transformer
