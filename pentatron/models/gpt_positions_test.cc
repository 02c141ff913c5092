// SPDX-License-Identifier: Apache-2.0
// Positions in their further forms and layers unlike each other, in fp64 against the plain writing.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "pentatron/base/test_support.h"
#include "pentatron/models/plain_writing_test_support.h"

namespace pentatron::models {
namespace {

using namespace test_support;  // NOLINT: test vocabulary

TEST(RelativePositions, AreInTheModel) {
  for (config::ModelConfig config : {gpt2_kind(), llama_kind()}) {
    config.position_embedding_type = "relative";
    config.relative_attention_num_buckets = 6;
    config.relative_attention_max_distance = 10;  // samples are longer
    expect_plain_writing(config);
    config.relative_attention_max_distance = 100;
    config.window_size = "5,0";
    config.attn_logit_softcapping = 2.0;
    config.softmax_type = "learnable";
    expect_plain_writing(config);
    const auto plans = plan_parameters(config, 1, 1);
    const auto* table = plans[0][0].find("decoder_relative_pos_emb.relative_attention_bias.weight");
    ASSERT_NE(table, nullptr);
    EXPECT_EQ(table->spec.local_shape, (Shape{6, 4}));
  }
}

// Each half of a layer in each of its forms, and other sizes in each.
TEST(HeterogeneousLayers, AreInTheModel) {
  for (config::ModelConfig config : {gpt2_kind(), llama_kind()}) {
    config.num_layers = 5;
    config.heterogeneous_layers_config_encoded_json = R"({"block_configs": [
      {"attention": {"num_query_groups": 1}, "ffn": {"ffn_hidden_size": 16}},
      {"attention": {"replace_with_linear": true}, "ffn": {"ffn_hidden_size": 56}},
      {"attention": {"num_query_groups": 4}, "ffn": {"replace_with_linear": true}},
      {"attention": {"no_op": true}, "ffn": {"no_op": true}},
      {"attention": {"no_op": true}, "ffn": {"ffn_hidden_size": 24}}]})";
    expect_plain_writing(config);
    const auto plans = plan_parameters(config, 1, 1);
    const nn::ParameterPlan& plan = plans[0][0];
    const auto rows = [&](const std::string& name) {
      return plan.at("decoder.layers." + name).spec.local_shape.at(0);
    };
    EXPECT_EQ(rows("0.self_attention.linear_qkv.weight"), (4 + 2 * 1) * 6);
    EXPECT_EQ(rows("2.self_attention.linear_qkv.weight"), (4 + 2 * 4) * 6);
    EXPECT_EQ(rows("1.mlp.linear_fc1.weight"), (config.swiglu ? 2 : 1) * 56);
    for (const char* name :
         {"1.self_attention.linear_qkv.weight", "2.mlp.linear_fc1.weight",
          "3.input_layernorm.weight", "3.pre_mlp_layernorm.weight", "4.input_layernorm.weight"}) {
      EXPECT_EQ(plan.find(std::string("decoder.layers.") + name), nullptr) << name;
    }
    EXPECT_EQ(plan.find("decoder.layers.1.self_attention.bias") != nullptr, config.add_bias_linear);
  }
}

config::ModelConfig longrope_kind() {
  config::ModelConfig config = llama_kind();
  config.position_embedding_type = "longrope";
  config.rotary_base = 100;
  config.longrope_short_factor = {"1", "1.25", "2"};
  config.longrope_long_factor = {"1.5", "3", "7.5"};
  config.longrope_original_max_position_embeddings = 8;
  return config;
}

// Samples of 12 tokens, beyond the original length or within it.
TEST(LongRope, IsInTheModel) {
  config::ModelConfig config = longrope_kind();
  expect_plain_writing(config);
  config.rotary_interleaved = true;
  expect_plain_writing(config);
  config.longrope_original_max_position_embeddings = 12;
  expect_plain_writing(config);
  config.longrope_original_max_position_embeddings = 100;  // no longer than it was: no magnitude
  expect_plain_writing(config);
}

// The logits of this rank's vocabulary rows.
Tensor logits_of(nn::Stage& stage, const Batch& batch, const PrecisionPolicy& policy,
                 nn::Phase phase) {
  nn::StepContext step{.batch = batch, .policy = policy, .phase = phase};
  step.output = nn::StageOutput::kLogits;
  return stage.forward({}, step).at(0).tensor.detach();
}

// Rows of a batch as the only text of another one.
Batch text_alone(const Batch& batch, std::int64_t begin, std::int64_t length) {
  Batch alone;
  alone.sequences.emplace(Batch::kText, SequenceRows{.boundaries = {0, length}});
  for (const auto& [name, values] : batch.fields) {
    alone.fields[name] = values.narrow(0, begin, length);
  }
  return alone;
}

// Of 8 tokens and fewer by the short factors, of more by the long ones: what a text gives in a
// packed batch is what it gives alone.
TEST(LongRope, TextsChooseTheirAngles) {
  const config::ModelConfig config = longrope_kind();
  config::ModelConfig changed = config;
  changed.longrope_long_factor = {"1.5", "3", "8"};
  const Tensors weights = random_weights(config);
  const PrecisionPolicy policy = precision_policy("fp64");
  const std::vector<std::vector<std::int64_t>> samples = {{8, 3}, {9, 1}, {12}};
  const Batch batch = make_batch(samples, config.vocab_size);
  for (const std::int64_t tp : {1, 2}) {
    run_layout({tp, false}, policy, [&](const parallel_layers::LeafContext& context) {
      const auto stage = make_stage("gpt", config, context, config::whole_model(config));
      const auto other = make_stage("gpt", changed, context, config::whole_model(changed));
      load(*stage, weights);
      load(*other, weights);
      for (const nn::Phase phase : {nn::Phase::kEvaluate, nn::Phase::kTrain}) {
        const Tensor packed = logits_of(*stage, batch, policy, phase);
        const Tensor with_changed = logits_of(*other, batch, policy, phase);
        std::int64_t begin = 0;
        for (const std::int64_t length : {8, 3, 9, 1, 12}) {
          SCOPED_TRACE(length);
          const Tensor rows = packed.narrow(0, begin, length);
          const Batch alone = text_alone(batch, begin, length);
          EXPECT_LE(difference(rows, logits_of(*stage, alone, policy, phase)), 1e-12);
          const double change = difference(rows, with_changed.narrow(0, begin, length));
          if (length > 8) {
            EXPECT_GT(change, 1e-4);
          } else {
            EXPECT_EQ(change, 0.0);
          }
          begin += length;
        }
      }
    });
  }
}

config::ModelConfig mrope_kind() {
  config::ModelConfig config = llama_kind();
  config.kv_channels = 12;
  config.position_embedding_type = "mrope";
  config.rotary_base = 100;
  config.mrope_section = {"1", "3", "2"};
  return config;
}

// Text alone is rotated as with rope, to the bit.
TEST(Mrope, OfTextIsRope) {
  const config::ModelConfig config = mrope_kind();
  config::ModelConfig rope = config;
  rope.position_embedding_type = "rope";
  const Batch batch = make_batch({{5, 7}, {12}}, config.vocab_size);
  const Tensors weights = random_weights(config);
  EXPECT_TRUE(run_one(config, weights, batch, "fp64")
                  .logits.equal(run_one(rope, weights, batch, "fp64").logits));
  expect_plain_writing(config);
}

// Three streams of positions that differ from each other.
TEST(Mrope, TakesPositionsOnThreeAxes) {
  std::vector<std::int64_t> axes;
  for (std::int64_t t = 0; t < 24; ++t) {
    for (const std::int64_t position : {t / 4, t % 4, (3 * t) % 5}) axes.push_back(position);
  }
  const Tensor axes_t3 = tensor::from_vector(axes).view({24, 3});
  expect_plain_writing(mrope_kind(), axes_t3);
  config::ModelConfig partial = mrope_kind();
  partial.rotary_percent = 1.0;
  partial.mrope_section = {"0", "6", "0"};
  expect_plain_writing(partial, axes_t3);
  // Equal streams are what text has.
  const config::ModelConfig config = mrope_kind();
  Batch batch = make_batch({{5, 7}, {12}}, config.vocab_size);
  const Tensors weights = random_weights(config);
  const Outcome text = run_one(config, weights, batch, "fp64");
  batch.fields["position_axes"] = batch.text().positions().unsqueeze(1).repeat({1, 3});
  EXPECT_LE(difference(run_one(config, weights, batch, "fp64").logits, text.logits), 1e-14);
  batch.fields["position_axes"] = axes_t3;
  EXPECT_GT(difference(run_one(config, weights, batch, "fp64").logits, text.logits), 1e-3);
  batch.fields["position_axes"] = axes_t3.add(100);
  expect_error(ErrorKind::kData, "outside the rotary table",
               [&] { (void)run_one(config, weights, batch, "fp64"); });
}

}  // namespace
}  // namespace pentatron::models
