// SPDX-License-Identifier: Apache-2.0
#include "pentatron/models/gpt/gpt_stage.h"

#include <gtest/gtest.h>

#include "pentatron/config/latent_attention.h"
#include "pentatron/models/model_test_support.h"
#include "pentatron/nn/kv_cache.h"
#include "pentatron/ops/event_test_support.h"

namespace pentatron::models {
namespace {

using namespace test_support;  // NOLINT: test vocabulary

// Runs on one process with a loaded model.
void with_model(const config::ModelConfig& config,
                const std::function<void(nn::Stage&, const PrecisionPolicy&)>& body,
                std::int64_t tensor_size = 1) {
  const PrecisionPolicy policy = precision_policy("fp64");
  run_layout({tensor_size, false}, policy, [&](const parallel_layers::LeafContext& context) {
    const auto stage = make_stage("gpt", config, context, config::whole_model(config));
    bind_gradients(*stage, policy);
    load(*stage, random_weights(config));
    body(*stage, policy);
  });
}

// The batch's rows [begin, end) as the newest tokens of its one sequence.
Batch part_of(const Batch& whole, std::int64_t begin, std::int64_t end) {
  const auto slice = [&](const std::vector<std::int64_t>& values) {
    return std::vector<std::int64_t>{values.begin() + begin, values.begin() + end};
  };
  const SequenceRows& rows = whole.text().rows();
  Batch part;
  part.sequences.emplace(Batch::kText, SequenceRows{.boundaries = {0, end - begin},
                                                    .positions = slice(rows.positions),
                                                    .sample_ids = slice(rows.sample_ids),
                                                    .token_index = slice(rows.token_index)});
  for (const auto& [name, values] : whole.fields) {
    part.fields.emplace(name, values.narrow(0, begin, end - begin));
  }
  return part;
}

// Both kinds, and further forms of layers and head.
std::vector<config::ModelConfig> kinds_of_decoders() {
  config::ModelConfig gemma = llama_kind(), olmo = llama_kind(), neox = gpt2_kind();
  gemma.norm_placement = "both";
  gemma.embedding_multiplier = 4.9;
  gemma.final_logit_softcapping = 3.0;
  gemma.rotary_base_local = 50;
  gemma.window_size = "100,0";
  gemma.window_attn_skip_freq = "2";
  olmo.norm_placement = "post";
  olmo.qk_layernorm = true;
  olmo.qk_norm_scope = "all-heads";
  olmo.position_embedding_type = "yarn";
  olmo.rotary_scaling_factor = 4.0;
  neox.parallel_attention = "own-norms";
  config::ModelConfig latent = llama_kind();
  latent.group_query_attention = false;
  latent.num_query_groups = latent.num_attention_heads;
  latent.multi_latent_attention = true;
  latent.qk_layernorm = true;
  latent.q_lora_rank = 9;
  latent.kv_lora_rank = 10;
  latent.qk_head_dim = 6;
  latent.qk_pos_emb_head_dim = 4;
  latent.v_head_dim = 5;
  latent.kv_channels = 10;
  return {gpt2_kind(), llama_kind(), gemma, olmo, neox, latent};
}

TEST(GptStage, CachedDecodingGivesTheLogitsOfTheWholeSequence) {
  for (const config::ModelConfig& config : kinds_of_decoders()) {
    for (const std::int64_t tensor_size : {1, 2}) {
      with_model(
          config,
          [&](nn::Stage& stage, const PrecisionPolicy& policy) {
            const tensor::NoGrad no_grad;
            const Batch whole = make_batch({{12}}, config.vocab_size);
            nn::StepContext step{.batch = whole,
                                 .policy = policy,
                                 .phase = nn::Phase::kEvaluate,
                                 .output = nn::StageOutput::kLogits};
            const Tensor expected = stage.forward({}, step).at(0).tensor;
            const std::vector<std::int64_t> heads(static_cast<std::size_t>(config.num_layers),
                                                  config.num_query_groups / tensor_size);
            nn::KvCache cache(
                heads, 12, {.keys = config.kv_channels, .values = config::value_channels(config)},
                policy.compute);
            std::vector<Tensor> rows;
            for (const auto& [begin, end] : std::vector<std::pair<std::int64_t, std::int64_t>>{
                     {0, 5}, {5, 6}, {6, 7}, {7, 10}, {10, 11}, {11, 12}}) {
              const Batch newest = part_of(whole, begin, end);
              nn::StepContext decode{.batch = newest,
                                     .policy = policy,
                                     .phase = begin == 0 ? nn::Phase::kPrefill : nn::Phase::kDecode,
                                     .output = nn::StageOutput::kLogits,
                                     .kv_cache = &cache};
              const nn::Bundle output = stage.forward({}, decode);
              EXPECT_EQ(output.at(0).name, "logits");
              rows.push_back(output.at(0).tensor);
            }
            EXPECT_LE(difference(tensor::cat(rows, 0), expected), 1e-12);
          },
          tensor_size);
    }
  }
}

// Documents side by side in one sample, attention and positions of their own: each has the logits
// that it has alone.
TEST(Cases, MegatronLM_954) {
  for (const config::ModelConfig& config : kinds_of_decoders()) {
    with_model(
        config,
        [&](nn::Stage& stage, const PrecisionPolicy& policy) {
          const tensor::NoGrad no_grad;
          const auto logits_of = [&](const Batch& batch) {
            nn::StepContext step{.batch = batch,
                                 .policy = policy,
                                 .phase = nn::Phase::kEvaluate,
                                 .output = nn::StageOutput::kLogits};
            return stage.forward({}, step).at(0).tensor;
          };
          const Batch whole = make_batch({{5, 1, 6}}, config.vocab_size);
          const Tensor together = logits_of(whole);
          for (const auto& [begin, end] :
               std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 5}, {5, 6}, {6, 12}}) {
            EXPECT_LE(difference(logits_of(part_of(whole, begin, end)),
                                 together.narrow(0, begin, end - begin)),
                      1e-12);
          }
        },
        /*tensor_size=*/1);
  }
}

TEST(GptStage, EventsComeInOrderAroundEveryUnit) {
  with_model(gpt2_kind(), [](nn::Stage& stage, const PrecisionPolicy& policy) {
    const Batch batch = make_batch({{12}}, 61);
    ops::testing::EventNotes events;
    nn::StepContext step{.batch = batch, .policy = policy, .events = &events, .first_unit = 3};
    const Tensor loss = stage.forward({}, step).at(0).tensor;
    EXPECT_EQ(events.text, "fb3 fe3 fb4 fe4 fb5 fe5 fb6 fe6 ");
    events.text.clear();
    ops::run_backward(loss, tensor::scalar(1.0, policy.loss));
    EXPECT_EQ(events.text, "bb6 be6 bb5 be5 bb4 be4 bb3 be3 ");
  });
}

TEST(GptStage, PostponedWeightGradientsAreTheSame) {
  for (const config::ModelConfig& config : {gpt2_kind(), llama_kind()}) {
    with_model(config, [&](nn::Stage& stage, const PrecisionPolicy& policy) {
      const Batch batch = make_batch({{7, 5}}, config.vocab_size);
      const auto gradients = [&](bool postpone) {
        for (nn::Parameter* parameter : stage.parameters()) parameter->begin_step();
        WeightGradQueue queue;
        queue.set_postpone(postpone);
        std::vector<int> done;
        const auto listening = queue.on_unit_done([&](int unit) { done.push_back(unit); });
        nn::StepContext step{.batch = batch, .policy = policy, .scope = {.queue = &queue}};
        ops::run_backward(stage.forward({}, step).at(0).tensor, tensor::scalar(1.0, policy.loss));
        EXPECT_EQ(queue.pending() > 0, postpone);
        queue.drain();
        if (postpone) {
          // A tied head's work belongs to the embedding, an own head is the last unit.
          const int head = config.untie_embeddings_and_output_weights ? 3 : 0;
          EXPECT_EQ(done, (std::vector<int>{head, 2, 1}));
        }
        Gathered gathered;
        gathered.gradients(stage);
        return gathered.tensors();
      };
      const Tensors at_once = gradients(false);
      EXPECT_LE(worst_difference(gradients(true), at_once).first, 1e-14);
    });
  }
}

TEST(GptStage, UnitsHoldEveryParameterOnce) {
  const PrecisionPolicy policy = precision_policy("fp32");
  run_layout({1, false}, policy, [&](const parallel_layers::LeafContext& context) {
    const auto last =
        make_stage("gpt", gpt2_kind(), context, config::equal_stages(gpt2_kind(), 2).at(1));
    const auto units = last->units();
    ASSERT_EQ(units.size(), 2U);
    EXPECT_EQ(units[0].name, "decoder.layers.1");
    EXPECT_EQ(units[1].name, "head");
    EXPECT_EQ(units[0].parameters.size() + units[1].parameters.size(), last->parameters().size());
    EXPECT_EQ(units[1].parameters.back()->local_name(), "embedding.word_embeddings.weight");
    const auto first =
        make_stage("gpt", gpt2_kind(), context, config::equal_stages(gpt2_kind(), 2).at(0));
    EXPECT_EQ(first->units().at(0).name, "embedding");
    EXPECT_EQ(first->units().at(1).name, "decoder.layers.0");
    // One weight for both ends of one stage: the embedding's, whose backward comes last.
    const auto whole = make_stage("gpt", gpt2_kind(), context, config::whole_model(gpt2_kind()));
    std::vector<nn::Parameter*> in_units;
    for (const nn::Unit& unit : whole->units()) {
      in_units.insert(in_units.end(), unit.parameters.begin(), unit.parameters.end());
    }
    EXPECT_EQ(in_units, whole->parameters());
    const Batch batch = make_batch({{12}}, 61);
    EXPECT_TRUE(first->input_spec(batch).empty());
    EXPECT_TRUE(last->output_spec(batch).empty());
    EXPECT_EQ(last->input_spec(batch).at(0).shape, (Shape{12, 24}));
  });
}

TEST(GptStage, MisuseIsAnError) {
  with_model(gpt2_kind(), [](nn::Stage& stage, const PrecisionPolicy& policy) {
    const Batch batch = make_batch({{12}}, 61);
    nn::StepContext step{.batch = batch, .policy = policy};
    const Tensor any = tensor::zeros({12, 24}, DType::Double);
    EXPECT_THROW(static_cast<void>(stage.forward({{"hidden", any, true}}, step)), Error);
  });
  const PrecisionPolicy policy = precision_policy("fp32");
  run_layout({1, false}, policy, [&](const parallel_layers::LeafContext& context) {
    EXPECT_THROW(static_cast<void>(
                     make_stage("gtp", gpt2_kind(), context, config::whole_model(gpt2_kind()))),
                 Error);
    const auto last =
        make_stage("gpt", gpt2_kind(), context, config::equal_stages(gpt2_kind(), 2).at(1));
    const auto first =
        make_stage("gpt", gpt2_kind(), context, config::equal_stages(gpt2_kind(), 2).at(0));
    const Batch batch = make_batch({{12}}, 61);
    nn::StepContext step{.batch = batch, .policy = policy};
    EXPECT_THROW(static_cast<void>(last->forward({}, step)), Error);
    const Tensor wrong_dtype = tensor::zeros({12, 24}, DType::Double);
    EXPECT_THROW(static_cast<void>(last->forward({{"hidden", wrong_dtype, true}}, step)), Error);
  });
}

}  // namespace
}  // namespace pentatron::models
