// SPDX-License-Identifier: Apache-2.0
#include "pentatron/models/gpt/sharding.h"

#include <gtest/gtest.h>

#include <map>

#include "pentatron/base/error.h"
#include "pentatron/models/model_test_support.h"
#include "pentatron/nn/parameter.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::models {
namespace {

using test_support::gpt2_kind;
using test_support::llama_kind;

struct Holder {
  const nn::PlannedParameter* parameter;
  const nn::ShardPart* part;
  std::int64_t tensor_rank;
};

std::map<std::string, std::vector<Holder>> holders_of(
    const std::vector<std::vector<nn::ParameterPlan>>& plans) {
  std::map<std::string, std::vector<Holder>> holders;
  for (const auto& stage : plans) {
    for (std::size_t rank = 0; rank < stage.size(); ++rank) {
      for (const nn::PlannedParameter& parameter : stage[rank].parameters()) {
        for (const nn::ShardPart& part : parameter.spec.parts) {
          holders[part.name].push_back({&parameter, &part, static_cast<std::int64_t>(rank)});
        }
      }
    }
  }
  return holders;
}

Tensor initial(const Holder& holder) {
  nn::Parameter parameter(holder.parameter->local_name, holder.parameter->spec,
                          precision_policy("fp32"));
  parameter.initialise(1234);
  const std::int64_t padding = holder.part->local_rows - holder.part->box.size[0];
  if (padding > 0) {
    EXPECT_EQ(parameter.data()
                  .narrow(0, holder.part->local_row_begin + holder.part->box.size[0], padding)
                  .abs()
                  .max()
                  .item<double>(),
              0.0);
  }
  return nn::part_view(parameter.data(), *holder.part).clone();
}

void check_layout(const config::ModelConfig& config, std::int64_t tp, std::int64_t pp, bool sp) {
  SCOPED_TRACE(testing::Message() << "tp " << tp << " pp " << pp << " groups "
                                  << config.num_query_groups << " sp " << sp);
  const auto whole_plan = plan_parameters(config, 1, 1);
  const auto whole = holders_of(whole_plan);
  const auto plans = plan_parameters(config, tp, pp, sp);
  const auto parts = holders_of(plans);
  ASSERT_EQ(parts.size(), whole.size());
  for (const auto& [name, holders] : parts) {
    ASSERT_TRUE(whole.contains(name)) << name;
    const Holder& reference = whole.at(name).at(0);
    const Tensor expected = initial(reference);
    std::vector<nn::Box> counted;
    for (const Holder& holder : holders) {
      EXPECT_EQ(holder.part->logical_shape, reference.part->logical_shape) << name;
      if (holder.part->replica == 0) counted.push_back(holder.part->box);
      // Initial values are those of one process at the same place, bit for bit; so copies are equal
      // too.
      EXPECT_TRUE(initial(holder).equal(test_support::slice(expected, holder.part->box))) << name;
    }
    EXPECT_TRUE(nn::tiles_exactly(reference.part->logical_shape, counted)) << name;
    // Every copy has its counted original.
    for (const Holder& holder : holders) {
      const auto originals = std::count(counted.begin(), counted.end(), holder.part->box);
      EXPECT_TRUE(holder.part->box.empty() || originals == 1) << name;
    }
  }
}

TEST(Sharding, EveryLayoutTilesEveryTensorAndStartsFromTheSameValues) {
  for (const std::int64_t groups : {2, 8}) {
    config::ModelConfig llama = llama_kind();
    llama.num_attention_heads = 8;
    llama.num_query_groups = groups;
    config::ModelConfig gpt2 = gpt2_kind();
    gpt2.num_attention_heads = 8;
    gpt2.num_query_groups = groups;
    for (const std::int64_t tp : {1, 2, 4, 8}) {
      for (const std::int64_t pp : {1, 2}) {
        for (config::ModelConfig config : {llama, gpt2}) {
          config.kv_channels = 4;
          config.ffn_hidden_size = 32;
          config.padded_vocab_size = 128;
          check_layout(config, tp, pp, tp == 4);
        }
      }
    }
  }
}

TEST(Sharding, NamesAreMegatronsWithPartSuffixes) {
  const auto llama = holders_of(plan_parameters(llama_kind(), 1, 1));
  const auto gpt2 = holders_of(plan_parameters(gpt2_kind(), 1, 1));
  for (const char* name :
       {"embedding.word_embeddings.weight", "decoder.layers.1.input_layernorm.weight",
        "decoder.layers.1.self_attention.linear_qkv.q.weight",
        "decoder.layers.1.self_attention.linear_qkv.k.weight",
        "decoder.layers.1.self_attention.linear_qkv.v.weight",
        "decoder.layers.1.self_attention.linear_proj.weight",
        "decoder.layers.1.pre_mlp_layernorm.weight", "decoder.layers.1.mlp.linear_fc1.gate.weight",
        "decoder.layers.1.mlp.linear_fc1.up.weight", "decoder.layers.1.mlp.linear_fc2.weight",
        "decoder.final_layernorm.weight", "output_layer.weight"}) {
    EXPECT_TRUE(llama.contains(name)) << name;
  }
  EXPECT_EQ(llama.size(), 2 * 9 + 3U);
  for (const char* name :
       {"embedding.position_embeddings.weight", "decoder.layers.0.self_attention.linear_qkv.q.bias",
        "decoder.layers.0.mlp.linear_fc1.weight", "decoder.layers.0.mlp.linear_fc2.bias",
        "decoder.final_layernorm.bias"}) {
    EXPECT_TRUE(gpt2.contains(name)) << name;
  }
  EXPECT_FALSE(gpt2.contains("output_layer.weight"));
  EXPECT_EQ(gpt2.size(), 2 * 16 + 4U);
}

TEST(Sharding, TiedEmbeddingStandsOnBothEndsAndCountsOnce) {
  const auto plans = plan_parameters(gpt2_kind(), 2, 2);
  const nn::ShardPart& first = plans[0][1].at("embedding.word_embeddings.weight").spec.parts[0];
  const nn::ShardPart& last = plans[1][1].at("embedding.word_embeddings.weight").spec.parts[0];
  EXPECT_TRUE(first.tied && last.tied);
  EXPECT_EQ(first.replica, 0);
  EXPECT_NE(last.replica, 0);
  EXPECT_EQ(first.box, last.box);
  EXPECT_FALSE(plan_parameters(gpt2_kind(), 2, 1)[0][0]
                   .at("embedding.word_embeddings.weight")
                   .spec.parts[0]
                   .tied);
}

TEST(Sharding, InitialStandardDeviationsAreMegatrons) {
  const nn::ParameterPlan plan = plan_parameters(gpt2_kind(), 1, 1)[0][0];
  const auto init = [&](const char* name) { return plan.at(name).spec.parts[0].init; };
  EXPECT_EQ(init("decoder.layers.0.self_attention.linear_qkv.weight").std, 0.02);
  EXPECT_DOUBLE_EQ(init("decoder.layers.0.self_attention.linear_proj.weight").std, 0.01);
  EXPECT_DOUBLE_EQ(init("decoder.layers.1.mlp.linear_fc2.weight").std, 0.01);  // 0.02 / sqrt(2 x 2)
  EXPECT_EQ(init("decoder.layers.0.mlp.linear_fc1.bias").kind, nn::InitKind::kZeros);
  EXPECT_EQ(init("decoder.layers.0.input_layernorm.weight").kind, nn::InitKind::kOnes);
  EXPECT_EQ(init("decoder.layers.0.input_layernorm.bias").kind, nn::InitKind::kZeros);
}

// Inside layers divided by the root of the width's factor, which is 4; embeddings, positions and
// the untied output layer as they are.
TEST(Mup, InitialStandardDeviationsFollowTheWidth) {
  config::ModelConfig config = gpt2_kind();
  config.use_mup = true;
  config.mup_width_mult = 4.0;
  config.softmax_type = "learnable";
  config.untie_embeddings_and_output_weights = true;
  const auto std_of = [&config](const char* name) {
    return plan_parameters(config, 1, 1)[0][0].at(name).spec.parts[0].init.std;
  };
  const auto inside = [&] {
    EXPECT_DOUBLE_EQ(std_of("decoder.layers.0.self_attention.linear_qkv.weight"), 0.01);
    EXPECT_DOUBLE_EQ(std_of("decoder.layers.0.mlp.linear_fc1.weight"), 0.01);
    EXPECT_DOUBLE_EQ(std_of("decoder.layers.0.self_attention.core_attention.softmax_offset"), 0.01);
    // 0.02 / (sqrt(2 x 2) sqrt(4))
    EXPECT_DOUBLE_EQ(std_of("decoder.layers.0.self_attention.linear_proj.weight"), 0.005);
    EXPECT_DOUBLE_EQ(std_of("decoder.layers.1.mlp.linear_fc2.weight"), 0.005);
  };
  inside();
  EXPECT_EQ(std_of("embedding.word_embeddings.weight"), 0.02);
  EXPECT_EQ(std_of("embedding.position_embeddings.weight"), 0.02);
  EXPECT_EQ(std_of("output_layer.weight"), 0.02);
  config.embedding_init_method_std = 0.7;
  inside();
  EXPECT_EQ(std_of("embedding.word_embeddings.weight"), 0.7);
  EXPECT_EQ(std_of("output_layer.weight"), 0.7);
  config.use_mup = false;
  EXPECT_EQ(std_of("output_layer.weight"), 0.02);
  EXPECT_EQ(std_of("decoder.layers.0.mlp.linear_fc1.weight"), 0.02);
}

TEST(Sharding, SizesThatDoNotFitAreConfigErrorsThatNameTheOption) {
  const auto message = [](const std::function<void(config::ModelConfig&)>& change, std::int64_t tp,
                          std::int64_t pp) -> std::string {
    config::ModelConfig config = gpt2_kind();
    change(config);
    try {
      static_cast<void>(plan_parameters(config, tp, pp));
    } catch (const Error& error) {
      return error.kind() == ErrorKind::kInternal ? "internal" : error.what();
    }
    return "no error";
  };
  const auto has = [](const std::string& text, std::string_view piece) {
    return text.find(piece) != std::string::npos;
  };
  EXPECT_TRUE(has(message([](auto& c) { c.num_layers = 3; }, 1, 2), "--num-layers 3"));
  EXPECT_TRUE(has(message(
                      [](auto& c) {
                        c.num_attention_heads = 12;
                        c.num_query_groups = 6;
                      },
                      4, 1),
                  "--num-query-groups"));
  EXPECT_TRUE(has(message(
                      [](auto& c) {
                        c.num_attention_heads = 6;
                        c.num_query_groups = 2;
                      },
                      4, 1),
                  "--num-attention-heads 6"));
  EXPECT_TRUE(has(message([](auto& c) { c.ffn_hidden_size = 42; }, 4, 1), "42"));
  EXPECT_TRUE(has(message([](auto& c) { c.padded_vocab_size = 62; }, 4, 1), "62"));
  EXPECT_TRUE(has(message([](auto& c) { c.padded_vocab_size = 32; }, 1, 1), "--padded-vocab-size"));
  EXPECT_TRUE(has(message([](auto& c) { c.hidden_size = 0; }, 1, 1), "--hidden-size"));
  EXPECT_TRUE(has(message([](auto& c) { c.normalization = "x"; }, 1, 1), "--normalization"));
  EXPECT_TRUE(has(message([](auto& c) { c.position_embedding_type = "x"; }, 1, 1),
                  "--position-embedding-type"));
}

}  // namespace
}  // namespace pentatron::models
