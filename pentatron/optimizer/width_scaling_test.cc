// SPDX-License-Identifier: Apache-2.0
#include "pentatron/optimizer/width_scaling.h"

#include <gtest/gtest.h>

namespace pentatron::optimizer {
namespace {

using nn::ShardRole;
using ops::RateClass;

config::ModelConfig four_times_the_base() {
  config::ModelConfig model;
  model.use_mup = true;
  model.mup_width_mult = 4.0;
  return model;
}

config::OptimizerConfig with(const char* optimizer) {
  config::OptimizerConfig config;
  config.optimizer = optimizer;
  return config;
}

constexpr ShardRole kAll[] = {
    ShardRole::kMatrix, ShardRole::kQkv,       ShardRole::kPositionTable, ShardRole::kWordEmbedding,
    ShardRole::kOutput, ShardRole::kLowRankUp, ShardRole::kVector};

// megatron/core/optimizer/__init__.py, get_mup_config_overrides.
TEST(WidthScaling, IsMegatronsTable) {
  WidthScaling scaling = width_scaling(four_times_the_base(), with("adam"));
  EXPECT_EQ(scaling.lr_factor, 0.25);
  for (const ShardRole role : kAll) {
    const bool hidden = role == ShardRole::kMatrix || role == ShardRole::kQkv;
    EXPECT_EQ(scaling.rate_of(role) == RateClass::kWidth, hidden) << static_cast<int>(role);
    EXPECT_EQ(scaling.eps_factor_of(role), hidden ? 0.25 : 1.0) << static_cast<int>(role);
  }
  EXPECT_EQ(scaling.rate_of(ShardRole::kPositionTable), RateClass::kUsual);
  EXPECT_EQ(scaling.rate_of(ShardRole::kOutput), RateClass::kDecoupled);

  scaling = width_scaling(four_times_the_base(), with("sgd"));
  EXPECT_EQ(scaling.lr_factor, 4.0);
  for (const ShardRole role : kAll) {
    const bool hidden = role == ShardRole::kMatrix || role == ShardRole::kQkv;
    EXPECT_EQ(scaling.rate_of(role), hidden ? RateClass::kUsual : RateClass::kWidth)
        << static_cast<int>(role);
    EXPECT_EQ(scaling.eps_factor_of(role), 1.0);
  }
}

TEST(WidthScaling, ADecoupledRateStandsAsItIsGiven) {
  config::OptimizerConfig sgd = with("sgd");
  sgd.decoupled_lr = 0.1;
  const WidthScaling scaling = width_scaling(four_times_the_base(), sgd);
  EXPECT_EQ(scaling.rate_of(ShardRole::kWordEmbedding), RateClass::kDecoupled);
  EXPECT_EQ(scaling.rate_of(ShardRole::kOutput), RateClass::kDecoupled);
  EXPECT_EQ(scaling.rate_of(ShardRole::kVector), RateClass::kWidth);
  EXPECT_EQ(scaling.rate_of(ShardRole::kPositionTable), RateClass::kWidth);
}

TEST(WidthScaling, IsNothingForMuonAtTheBaseAndUnasked) {
  config::ModelConfig base = four_times_the_base();
  base.mup_width_mult = 1.0;
  config::ModelConfig unasked = four_times_the_base();
  unasked.use_mup = false;
  for (const auto& [model, optimizer] :
       {std::pair{four_times_the_base(), "muon"}, std::pair{base, "adam"}, std::pair{base, "sgd"},
        std::pair{unasked, "adam"}, std::pair{unasked, "sgd"}}) {
    const WidthScaling scaling = width_scaling(model, with(optimizer));
    EXPECT_EQ(scaling.lr_factor, 1.0);
    for (const ShardRole role : kAll) {
      EXPECT_NE(scaling.rate_of(role), RateClass::kWidth);
      EXPECT_EQ(scaling.eps_factor_of(role), 1.0);
    }
  }
}

TEST(WidthScaling, TellsWhatItDoes) {
  const config::ModelConfig model = four_times_the_base();
  EXPECT_EQ(width_scaling_line(model, with("adam")),
            " > maximal update parametrisation: width 4 x the base, learning rate x 0.25 and eps x "
            "0.25 of matrices inside layers");
  EXPECT_EQ(width_scaling_line(model, with("sgd")),
            " > maximal update parametrisation: width 4 x the base, learning rate x 4 of all that "
            "are no matrices inside layers");
  EXPECT_EQ(width_scaling_line(model, with("muon")),
            " > maximal update parametrisation: width 4 x the base, the same learning rate for "
            "all");
  EXPECT_EQ(width_scaling_line({}, with("adam")), "");
  config::ModelConfig adapted = model;
  adapted.lora_rank = 2;
  EXPECT_EQ(width_scaling_line(adapted, with("adam")),
            " > maximal update parametrisation: width 4 x the base, learning rate x 0.25 and eps x "
            "0.25 of adapters' A");
}

}  // namespace
}  // namespace pentatron::optimizer
