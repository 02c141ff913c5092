// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/decay_norms.h"

#include <gtest/gtest.h>

#include "pentatron/training/model_parts.h"
#include "pentatron/training/test_support.h"

namespace pentatron::training {
namespace {

using namespace testing_support;  // NOLINT: test vocabulary

constexpr double kRate = 0.01;

struct Trained {
  Tensors weights;
  std::string line;
};

Trained trained(const Layout& layout, const std::string& optimizer, bool decays) {
  const config::RunConfig config = tiny_config(layout, [&](config::RunConfig& c) {
    c.model.qk_layernorm = true;
    c.optimizer.optimizer = optimizer;
    c.optimizer.apply_wd_to_qk_layernorm = decays;
    c.training.precision = "fp64";
  });
  Trained result;
  with_engine(config, [&](Engine& engine) {
    EXPECT_TRUE(engine.train_step(micro_batches(engine, 0), kRate, kWeightDecay).finite);
    Tensors weights = engine.gather_parameters();
    std::string line = weight_decay_line(model_parts(engine), kWeightDecay);
    if (engine.context().world().rank() != 0) return;
    result = {std::move(weights), std::move(line)};
  });
  return result;
}

// A first step from ones: with decay, weights of query and key norms end lower by rate x decay, and
// nothing else differs, whatever the rule and the layout.
TEST(DecayNorms, QueryAndKeyNormsShrink) {
  for (const std::string optimizer : {"adam", "sgd", "lion"}) {
    for (const Layout& layout : {Layout{}, Layout{.tp = 2}, Layout{.dp = 2, .sharded = true}}) {
      const Trained plain = trained(layout, optimizer, false);
      const Trained decayed = trained(layout, optimizer, true);
      int norms = 0;
      for (const auto& [name, weight] : plain.weights) {
        const Tensor less = weight.sub(decayed.weights.at(name));
        if (is_qk_norm(name) && name.ends_with(".weight")) {
          EXPECT_NEAR(less.min().item<double>(), kRate * kWeightDecay, 1e-15) << name;
          EXPECT_NEAR(less.max().item<double>(), kRate * kWeightDecay, 1e-15) << name;
          ++norms;
        } else {
          EXPECT_TRUE(weight.equal(decayed.weights.at(name))) << name;
        }
      }
      EXPECT_EQ(norms, 4);
      // The norms are LayerNorms: weight and bias of two in each of two layers.
      EXPECT_EQ(plain.line.find("query and key norms"), std::string::npos);
      EXPECT_NE(decayed.line.find(" matrices and 8 vectors of query and key norms; none on "),
                std::string::npos)
          << decayed.line;
    }
  }
}

TEST(DecayNorms, Names) {
  EXPECT_TRUE(is_qk_norm("decoder.layers.3.self_attention.q_layernorm.weight"));
  EXPECT_TRUE(is_qk_norm("decoder.layers.3.self_attention.k_layernorm.bias"));
  EXPECT_FALSE(is_qk_norm("decoder.layers.3.input_layernorm.weight"));
  EXPECT_FALSE(is_qk_norm("decoder.final_layernorm.weight"));
}

}  // namespace
}  // namespace pentatron::training
