// SPDX-License-Identifier: Apache-2.0
#include "pentatron/transformer/offload_plan.h"

#include <gtest/gtest.h>

namespace pentatron::transformer {
namespace {

using enum OffloadedModule;

config::ModelConfig asked(std::vector<std::string> modules, double fraction) {
  config::ModelConfig config;
  config.fine_grained_activation_offloading = true;
  config.offload_modules = std::move(modules);
  config.activation_offload_fraction = fraction;
  return config;
}

TEST(OffloadPlan, NothingUnlessAskedFor) {
  config::ModelConfig config = asked({"core_attn"}, 1.0);
  config.fine_grained_activation_offloading = false;
  const OffloadPlan plan(config, 4);
  EXPECT_FALSE(plan.offloads());
  EXPECT_FALSE(plan.offloads(0, kCoreAttn));
}

TEST(OffloadPlan, NamedPartsOfEveryLayer) {
  const OffloadPlan plan(asked({"mlp_norm", "core_attn"}, 1.0), 3);
  EXPECT_TRUE(plan.offloads());
  for (int layer = 0; layer < 3; ++layer) {
    for (const OffloadedModule module : {kAttnNorm, kQkvLinear, kCoreAttn, kAttnProj, kMlpNorm}) {
      EXPECT_EQ(plan.offloads(layer, module), module == kCoreAttn || module == kMlpNorm);
    }
  }
}

// In the order of forward, whatever the order of the words.
TEST(OffloadPlan, AShareIsOfTheFirstParts) {
  const OffloadPlan plan(asked({"mlp_norm", "core_attn"}, 0.5), 3);
  EXPECT_TRUE(plan.offloads(0, kCoreAttn));
  EXPECT_TRUE(plan.offloads(0, kMlpNorm));
  EXPECT_TRUE(plan.offloads(1, kCoreAttn));
  EXPECT_FALSE(plan.offloads(1, kMlpNorm));
  EXPECT_FALSE(plan.offloads(2, kCoreAttn));
  const OffloadPlan one(asked({"core_attn"}, 0.1), 4);
  EXPECT_TRUE(one.offloads(0, kCoreAttn)) << "at least one";
  EXPECT_FALSE(one.offloads(1, kCoreAttn));
  EXPECT_FALSE(OffloadPlan(asked({"core_attn"}, 0.1), 10).offloads(1, kCoreAttn));
}

TEST(OffloadPlan, Names) {
  EXPECT_EQ(offloaded_module("attn_proj"), kAttnProj);
  EXPECT_EQ(offloaded_module("moe_act"), std::nullopt);
}

}  // namespace
}  // namespace pentatron::transformer
