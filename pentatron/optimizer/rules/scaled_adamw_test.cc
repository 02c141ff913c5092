// SPDX-License-Identifier: Apache-2.0
#include "pentatron/optimizer/rules/scaled_adamw.h"

#include <gtest/gtest.h>

#include "pentatron/optimizer/rules/test_support.h"

namespace pentatron::optimizer {
namespace {

using namespace testing_support;  // NOLINT: test vocabulary
using distributed::Sharding;

config::OptimizerConfig scaled(const std::string& first, const std::string& second) {
  config::OptimizerConfig c;
  c.clip_grad = 0;
  c.adam_eps = 1e-3;
  c.use_precision_aware_optimizer = true;
  c.exp_avg_dtype = first;
  c.exp_avg_sq_dtype = second;
  return c;
}

const std::vector<Layout>& layouts() {
  static const std::vector<Layout> kAll = {{.tp = 2},
                                           {.dp = 2, .sharding = Sharding::kOptimizer},
                                           {.dp = 3, .sharding = Sharding::kOptimizer},
                                           {.tp = 2, .dp = 2, .sharding = Sharding::kGradients},
                                           {.tp = 2, .dp = 2, .sharding = Sharding::kParameters}};
  return kAll;
}

TEST(ScaledAdamW, BitEqualInEveryLayout) {
  const PrecisionPolicy policy = precision_policy("bf16");
  for (const auto& [first, second] : {std::pair{"fp16", "fp16"}, std::pair{"fp8", "fp32"},
                                      std::pair{"fp8", "bf16"}, std::pair{"fp32", "fp16"}}) {
    const WholeTensors alone = state_after({}, policy, scaled(first, second), 4);
    for (const Layout& layout : layouts()) {
      EXPECT_EQ(difference(state_after(layout, policy, scaled(first, second), 4), alone), 0.0)
          << layout << " " << first << " " << second;
    }
  }
}

// One step of moments: what a checkpoint holds is the fp32 moment, off by half a step of the dtype
// for what is within its range of the largest.
TEST(ScaledAdamW, KeepsWhatTheDtypeHolds) {
  const PrecisionPolicy policy = precision_policy("fp32");
  const WholeTensors exact = state_after({}, policy, scaled("fp32", "fp32"), 1);
  for (const auto& [dtype, step] : {std::pair{"fp16", 1.0 / 2048}, std::pair{"fp8", 1.0 / 16}}) {
    const WholeTensors kept = state_after({}, policy, scaled(dtype, "fp32"), 1);
    for (const auto& [name, value] : exact) {
      if (!name.starts_with("exp_avg/")) continue;
      const double floor = value.abs().max().item<double>() / (1 << 15);
      const Tensor off = kept.at(name).sub(value).abs();
      EXPECT_TRUE(off.le(value.abs().mul(step * 1.001).add(floor)).all().item<bool>()) << name;
      EXPECT_GT(off.max().item<double>(), 0.0) << name;
    }
    EXPECT_EQ(difference({{"p", kept.at("main_param/proj")}}, {{"p", exact.at("main_param/proj")}}),
              0.0)
        << "the update itself has the moments in fp32";
  }
}

TEST(ScaledAdamW, TakesTheBytesOfItsDtypes) {
  const auto backend = comm::make_single_backend();
  Rig wide(*backend, {}, precision_policy("bf16"), scaled("fp32", "fp32"));
  Rig narrow(*backend, {}, precision_policy("bf16"), scaled("fp8", "fp16"));
  EXPECT_EQ(wide.optimizer->state_bytes() * (4 + 1 + 2), narrow.optimizer->state_bytes() * 12);
}

TEST(ScaledAdamW, ResumesBitForBitInAnotherLayout) {
  const PrecisionPolicy policy = precision_policy("bf16");
  const config::OptimizerConfig config = scaled("fp8", "fp16");
  const WholeTensors straight = state_after({}, policy, config, 4);
  const WholeTensors half = state_after({.tp = 2}, policy, config, 2);
  for (const Layout& layout : layouts()) {
    const WholeTensors resumed = resumed_state(layout, policy, config, half);
    EXPECT_EQ(difference(resumed, straight), 0.0) << layout;
  }
}

TEST(ScaledAdamW, ASkippedStepChangesNothing) {
  EXPECT_EQ(change_by_skipped_step(precision_policy("bf16"), scaled("fp8", "fp16"), 2), 0.0);
}

}  // namespace
}  // namespace pentatron::optimizer
