// SPDX-License-Identifier: Apache-2.0
#include "pentatron/transformer/block.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "pentatron/ops/backward.h"
#include "pentatron/parallel_layers/source_dir_test_support.h"
#include "pentatron/parallel_layers/test_support.h"

namespace pentatron::transformer {
namespace {

using namespace test_support;  // NOLINT: test vocabulary
using parallel_layers::Cut;
using parallel_layers::LeafContext;
using parallel_layers::PartRule;

constexpr std::int64_t kHidden = 8;

config::ModelConfig block_config() {
  config::ModelConfig c;
  c.num_layers = 2;
  c.hidden_size = kHidden;
  c.ffn_hidden_size = 12;
  c.num_attention_heads = 4;
  c.num_query_groups = 2;
  c.kv_channels = 4;
  c.max_position_embeddings = 16;
  c.seq_length = 16;
  c.position_embedding_type = "rope";
  c.normalization = "RMSNorm";
  c.swiglu = true;
  c.hidden_dropout = 0.25;
  c.attention_dropout = 0.25;
  return c;
}

nn::ParameterPlan block_plan(const LeafContext& context) {
  nn::ParameterPlan plan;
  const nn::InitSpec init{nn::InitKind::kNormal, 0.4};
  for (int n = 0; n < 2; ++n) {
    const std::string layer = "decoder.layers." + std::to_string(n) + ".";
    const auto add = [&](const std::string& name, std::vector<PartRule> parts) {
      for (PartRule& part : parts) {
        part.name = layer + name + part.name;
        part.init = init;
      }
      plan.add({layer + name + ".weight", lay_out(parts, context.layout()), n});
    };
    add("input_layernorm", {{"", kHidden}});
    add("self_attention.linear_qkv", {{".q", 16, kHidden, over_tp(4)},
                                      {".k", 8, kHidden, copies_over_tp(2)},
                                      {".v", 8, kHidden, copies_over_tp(2)}});
    add("self_attention.linear_proj", {{"", kHidden, 16, over_tp(4), true}});
    add("pre_mlp_layernorm", {{"", kHidden}});
    add("mlp.linear_fc1", {{".gate", 12, kHidden, over_tp(12)}, {".up", 12, kHidden, over_tp(12)}});
    add("mlp.linear_fc2", {{"", kHidden, 12, over_tp(12), true}});
  }
  return plan;
}

void run_block(const LeafContext& context, Gathered& out) {
  TransformerBlock block(context, block_plan(context), "decoder", block_config(),
                         layer_specs(block_config()), 0, 2, 0);
  initialise(block, 6);
  bind_gradients(block, context.policy());
  const Batch batch = make_batch({{5, 3}, {8}}, 13);
  nn::StepContext step{.batch = batch, .policy = context.policy(), .seed = 2};
  const LeafContext::Rows rows = context.local_rows(16);
  const nn::Box box{{rows.begin, 0}, {rows.size, kHidden}};
  const Tensor x = slice(random_tensor({16, kHidden}, "x"), box).clone().set_requires_grad(true);
  const Tensor y = block.forward(x, step);
  out.put("y", {16, kHidden}, box, y);
  ops::run_backward(y, slice(random_tensor({16, kHidden}, "dy"), box).contiguous());
  out.put("dx", {16, kHidden}, box, x.grad());
  out.gradients(block);
}

TEST(TransformerBlock, EqualsOneProcessOnEveryLayout) {
  const PrecisionPolicy policy = precision_policy("fp64");
  Gathered one;
  run_layout({1, false}, policy, [&](const LeafContext& c) { run_block(c, one); });
  for (const std::int64_t size : {2, 4}) {
    for (const bool sequence_parallel : {false, true}) {
      Gathered many;
      run_layout({size, sequence_parallel}, policy,
                 [&](const LeafContext& c) { run_block(c, many); });
      const auto [off, name] = worst_difference(many.tensors(), one.tensors());
      EXPECT_LE(off, 1e-12) << name << " on " << size << " ranks";
    }
  }
}

// Row `row` of the input moved: which rows of the output move?
TEST(TransformerBlock, NothingLooksAheadOrIntoAnotherDocument) {
  const PrecisionPolicy policy = precision_policy("fp64");
  run_layout({1, false}, policy, [&](const LeafContext& context) {
    TransformerBlock block(context, block_plan(context), "decoder", block_config(),
                           layer_specs(block_config()), 0, 2, 0);
    initialise(block, 6);
    const Batch batch = make_batch({{5, 3}, {8}}, 13);
    nn::StepContext step{.batch = batch, .policy = policy, .phase = nn::Phase::kEvaluate};
    const tensor::NoGrad no_grad;
    const Tensor x = random_tensor({16, kHidden}, "x");
    const Tensor before = block.forward(x, step);
    Tensor moved = x.clone();
    moved.select(0, 2).add_(1.0);
    const Tensor after = block.forward(moved, step);
    for (std::int64_t row = 0; row < 16; ++row) {
      const double change =
          after.select(0, row).sub(before.select(0, row)).abs().max().item<double>();
      const bool sees = row >= 2 && row < 5;
      EXPECT_EQ(change > 1e-9, sees) << "row " << row;
      if (!sees) {
        EXPECT_EQ(change, 0.0);
      }
    }
  });
}

TEST(TransformerBlock, OddRotaryChannelsAreAConfigError) {
  config::ModelConfig config = block_config();
  config.rotary_percent = 0.75;
  EXPECT_THROW(static_cast<void>(make_rotary(config, precision_policy("fp32"), Device("cpu"))),
               Error);
  config.position_embedding_type = "learned_absolute";
  const RotaryTables none = make_rotary(config, precision_policy("fp32"), Device("cpu"));
  EXPECT_EQ(none.usual, nullptr);
  EXPECT_EQ(none.local, nullptr);
}

// Blocks and models see no group: they may not include comm/ at all.
TEST(TransformerBlock, BlocksAndModelsIncludeNoCommunication) {
  const std::filesystem::path base = source_dir();
  int files = 0;
  for (const char* module : {"transformer", "models"}) {
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(base / "pentatron" / module)) {
      const std::string extension = entry.path().extension().string();
      if (extension != ".h" && extension != ".cc") continue;
      ++files;
      std::ifstream in(entry.path());
      for (std::string line; std::getline(in, line);) {
        if (!line.starts_with("#include")) continue;
        EXPECT_EQ(line.find("pentatron/comm/"), std::string::npos) << entry.path() << ": " << line;
      }
    }
  }
  EXPECT_GE(files, 15);
}

}  // namespace
}  // namespace pentatron::transformer
