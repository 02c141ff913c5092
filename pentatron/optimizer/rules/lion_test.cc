// SPDX-License-Identifier: Apache-2.0
#include "pentatron/optimizer/rules/lion.h"

#include <gtest/gtest.h>

#include "pentatron/optimizer/rules/test_support.h"

namespace pentatron::optimizer {
namespace {

using namespace testing_support;  // NOLINT: test vocabulary
using distributed::Sharding;

constexpr int kSteps = 4;

config::OptimizerConfig lion_config() {
  config::OptimizerConfig c;
  c.optimizer = "lion";
  c.clip_grad = 0;
  return c;
}

// On whole tensors, by the paper.
WholeTensors reference() {
  WholeTensors state;
  for (const auto& rules : weights()) {
    for (const Rule& rule : rules) {
      Tensor p = whole_values(rule.name, rule.shape, 0);
      Tensor m = tensor::zeros(rule.shape, DType::Double);
      const double decay = rule.role == nn::ShardRole::kVector ? 0 : kStepDecay;
      for (int step = 1; step <= kSteps; ++step) {
        const Tensor g = whole_values(rule.name, rule.shape, step);
        const Tensor c = m.mul(0.95).add(g.mul(0.05));
        p = p.sub(c.gt(0)
                      .to(DType::Double)
                      .sub(c.lt(0).to(DType::Double))
                      .add(p.mul(decay))
                      .mul(kStepRate));
        m = m.mul(0.98).add(g.mul(0.02));
      }
      state["main_param/" + rule.name] = p;
      state["exp_avg/" + rule.name] = m;
    }
  }
  return state;
}

TEST(Lion, EqualsTheFormulas) {
  for (const Layout& layout :
       {Layout{}, Layout{.tp = 2}, Layout{.dp = 2, .sharding = Sharding::kOptimizer},
        Layout{.tp = 2, .dp = 2, .sharding = Sharding::kGradients},
        Layout{.dp = 3, .sharding = Sharding::kParameters}, Layout{.on_host = true}}) {
    EXPECT_LT(difference(state_after(layout, precision_policy("fp64"), lion_config(), kSteps),
                         reference()),
              1e-12)
        << layout;
  }
}

TEST(Lion, AnyCutGivesEqualBits) {
  const PrecisionPolicy policy = precision_policy("bf16");
  const WholeTensors alone = state_after({}, policy, lion_config(), kSteps);
  EXPECT_EQ(difference(state_after({.tp = 2, .dp = 2, .sharding = Sharding::kOptimizer}, policy,
                                   lion_config(), kSteps),
                       alone),
            0.0);
}

TEST(Lion, ASkippedStepChangesNothing) {
  EXPECT_EQ(change_by_skipped_step(precision_policy("fp32"), lion_config(), 1), 0.0);
}

}  // namespace
}  // namespace pentatron::optimizer
