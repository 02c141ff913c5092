// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/freeze.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "pentatron/base/test_support.h"
#include "pentatron/comm/group.h"
#include "pentatron/training/engine.h"
#include "pentatron/training/model_parts.h"
#include "pentatron/training/test_support.h"

namespace pentatron::training {
namespace {

using namespace testing_support;  // NOLINT: test vocabulary

TEST(FreezePattern, StarsAndQuestionMarks) {
  EXPECT_TRUE(matches("a.b", "a.b"));
  EXPECT_FALSE(matches("a.b", "a.b.c"));
  EXPECT_TRUE(matches("a*", "a.b.c"));
  EXPECT_TRUE(matches("*", ""));
  EXPECT_TRUE(matches("*.c", "a.b.c"));
  EXPECT_TRUE(matches("a*b*c", "axxbyybzc"));
  EXPECT_FALSE(matches("a*b*c", "axxbyybz"));
  EXPECT_TRUE(matches("layers.?.x**", "layers.3.x"));
  EXPECT_FALSE(matches("layers.?.x", "layers.12.x"));
  EXPECT_FALSE(matches("", "a"));
}

config::RunConfig freezing(const Layout& layout, std::vector<std::string> patterns) {
  return tiny_config(layout, [&](config::RunConfig& c) {
    c.optimizer.freeze_parameters = std::move(patterns);
    c.optimizer.adam_eps = 1e-3;
    c.training.precision = "fp64";
  });
}

Tensors trained(const config::RunConfig& config, std::int64_t* state_bytes = nullptr) {
  Tensors weights;
  with_engine(config, [&](Engine& engine) {
    for (int step = 0; step < 2; ++step) {
      EXPECT_TRUE(engine.train_step(micro_batches(engine, step), 0.01, 0).finite);
    }
    Tensors gathered = engine.gather_parameters();
    if (engine.context().world().rank() != 0) return;
    if (state_bytes != nullptr) *state_bytes = engine.optimizer().state_bytes();
    weights = std::move(gathered);
  });
  return weights;
}

// Frozen weights keep their bits, the others take the same way in every layout: also where a whole
// stage, or the tied embedding on both ends of the pipeline, has nothing to learn.
TEST(FreezeParameters, KeepTheirBitsInEveryLayout) {
  Tensors initial;
  with_engine(freezing({}, {}), [&](Engine& engine) { initial = engine.gather_parameters(); });
  for (const auto& [name, weight] : initial) {
    if (name.ends_with(".k.bias")) initial.at(name) = Tensor();  // its gradient is zero
  }
  for (const std::vector<std::string>& patterns :
       {std::vector<std::string>{"*.mlp.*", "decoder.layers.1.*layernorm.*"},
        std::vector<std::string>{"embedding.*", "decoder.layers.0.*"}}) {
    const Tensors alone = trained(freezing({}, patterns));
    int kept = 0, changed = 0;
    for (const auto& [name, weight] : alone) {
      if (!initial.at(name).defined()) continue;
      const bool frozen = std::any_of(patterns.begin(), patterns.end(),
                                      [&](const auto& pattern) { return matches(pattern, name); });
      EXPECT_EQ(weight.equal(initial.at(name)), frozen) << name;
      ++(frozen ? kept : changed);
    }
    EXPECT_GT(kept, 2);
    EXPECT_GT(changed, 2);
    for (const Layout& layout :
         {Layout{.tp = 2}, Layout{.pp = 2}, Layout{.dp = 2, .sharded = true}}) {
      const Tensors weights = trained(freezing(layout, patterns));
      for (const auto& [name, weight] : alone) {
        if (!initial.at(name).defined()) continue;
        const double off = weights.at(name).sub(weight).abs().max().item<double>();
        EXPECT_LE(off, 1e-11 * weight.abs().max().item<double>()) << name;
        if (weight.equal(initial.at(name))) {
          EXPECT_TRUE(weights.at(name).equal(weight)) << name;
        }
      }
    }
  }
}

TEST(FreezeParameters, AreCountedInTheLineAtStart) {
  with_engine(freezing({}, {"decoder.layers.0.*"}), [](Engine& engine) {
    const std::string line = weight_decay_line(model_parts(engine), 0.1);
    EXPECT_NE(line.find("; 16 parts are frozen"), std::string::npos) << line;
  });
}

TEST(FreezeParameters, HaveNoOptimizerState) {
  std::int64_t all = 0, some = 0;
  (void)trained(freezing({}, {}), &all);
  (void)trained(freezing({}, {"*.mlp.*"}), &some);
  EXPECT_GT(some, 0);
  EXPECT_LT(some, all * 3 / 4);
}

TEST(FreezeParameters, PatternsThatCannotBeMeantAreErrors) {
  const auto refused = [](const std::string& told, std::vector<std::string> patterns) {
    expect_error(ErrorKind::kConfig, told,
                 [&] { with_engine(freezing({}, std::move(patterns)), [](Engine&) {}); });
  };
  refused("describes no parameter", {"*.mlp.*", "decoder.layer.*"});
  refused("the nearest that does is decoder.layers.0.*", {"decoder.layer.0.*"});
  refused("is embedding.word_embeddings.weight", {"embeding.word_embeddings.weight"});
  refused("are meant: name all of them", {"*.linear_qkv.q.weight"});
  refused("leaves no parameter to train", {"*"});
}

}  // namespace
}  // namespace pentatron::training
