// SPDX-License-Identifier: Apache-2.0
#include "pentatron/inference/generator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "pentatron/base/test_support.h"
#include "pentatron/inference/tiny_model_test_support.h"

namespace pentatron::inference {
namespace {

using Tokens = std::vector<std::int32_t>;

using test_support::gpt2_kind;
using test_support::Layout;
using test_support::llama_kind;

// Ready to generate.
class TinyModel {
 public:
  explicit TinyModel(const test_support::TinyModel& model) : model_(model) {}
  [[nodiscard]] Generated run(const Tokens& prompt, const GenerationOptions& options,
                              const TokenSink& sink = {}) const {
    ModelRunner runner(model_.run_config, model_.stages, model_.context, model_.policy);
    return generate(runner, model_.run_config.model.vocab_size, prompt, options, sink);
  }
  [[nodiscard]] const config::ModelConfig& config() const { return model_.run_config.model; }
  [[nodiscard]] nn::LocalStages& stages() const { return model_.stages; }
  [[nodiscard]] const PrecisionPolicy& policy() const { return model_.policy; }

 private:
  const test_support::TinyModel& model_;
};

void with_model(const std::string& precision, const config::ModelConfig& kind, const Layout& layout,
                const std::function<void(const TinyModel&)>& body) {
  test_support::with_model(precision, kind, layout,
                           [&](const test_support::TinyModel& model) { body(TinyModel(model)); });
}

// On one rank, for the GPT-2 and the Llama kind.
void with_models(const std::string& precision, const std::function<void(const TinyModel&)>& body) {
  for (const config::ModelConfig& kind : {gpt2_kind(), llama_kind()}) {
    with_model(precision, kind, {}, body);
  }
}

const Tokens kPrompt{3, 17, 59, 4, 30};

TEST(Generator, SameTokensWithAndWithoutCache) {
  for (const char* precision : {"fp32", "fp64"}) {
    with_models(precision, [](const TinyModel& model) {
      for (const SamplingOptions& sampling :
           {SamplingOptions{.temperature = 0.0}, SamplingOptions{.temperature = 1.0, .seed = 3},
            SamplingOptions{.temperature = 0.8, .top_k = 8},
            SamplingOptions{.temperature = 1.5, .top_p = 0.9}}) {
        GenerationOptions options{.sampling = sampling, .max_new_tokens = 43};
        const Generated cached = model.run(kPrompt, options);
        options.use_kv_cache = false;
        const Generated whole = model.run(kPrompt, options);
        EXPECT_EQ(cached.tokens, whole.tokens);
        ASSERT_EQ(cached.tokens.size(), 43U);  // to the model's last position
        EXPECT_EQ(cached.reason, FinishReason::kLength);
        for (const std::int32_t token : cached.tokens) {
          EXPECT_GE(token, 0);
          EXPECT_LT(token, model.config().vocab_size);  // never a padding row
        }
        // A text without variety would hide mistakes.
        EXPECT_GT(std::set<std::int32_t>(cached.tokens.begin(), cached.tokens.end()).size(), 4U);
      }
    });
  }
}

// Windows that the text outgrows, sinks, caps and gates: in prefill and in each step of one token.
TEST(Generator, SameTokensWithAndWithoutCacheInEveryFormOfAttention) {
  for (const char* window : {"", "2,0", "9,0"}) {
    config::ModelConfig kind = test_support::llama_kind();
    kind.window_size = window;
    kind.window_attn_skip_freq = "[1,0]";
    kind.softmax_type = "learnable";
    kind.attn_logit_softcapping = 2.0;
    kind.attention_output_gate = true;
    kind.softmax_scale = 0.6;
    for (const Layout& layout : {Layout{}, Layout{.tp = 2}}) {
      with_model("fp64", kind, layout, [](const TinyModel& model) {
        GenerationOptions options{.sampling = {.temperature = 1.0, .seed = 3},
                                  .max_new_tokens = 43};
        const Generated cached = model.run(kPrompt, options);
        options.use_kv_cache = false;
        EXPECT_EQ(cached.tokens, model.run(kPrompt, options).tokens);
        EXPECT_GT(std::set<std::int32_t>(cached.tokens.begin(), cached.tokens.end()).size(), 4U);
      });
    }
  }
}

void expect_cache_changes_nothing(const config::ModelConfig& kind,
                                  const std::vector<Layout>& layouts, std::int64_t new_tokens) {
  for (const Layout& layout : layouts) {
    with_model("fp64", kind, layout, [&](const TinyModel& model) {
      GenerationOptions options{.sampling = {.temperature = 1.0, .seed = 3},
                                .max_new_tokens = new_tokens};
      const Generated cached = model.run(kPrompt, options);
      options.use_kv_cache = false;
      EXPECT_EQ(cached.tokens, model.run(kPrompt, options).tokens);
      EXPECT_GT(std::set<std::int32_t>(cached.tokens.begin(), cached.tokens.end()).size(), 4U);
    });
  }
}

// Biases by distance reach back to the first cached key.
TEST(Generator, SameTokensWithAndWithoutCacheOfRelativePositions) {
  config::ModelConfig kind = test_support::llama_kind();
  kind.position_embedding_type = "relative";
  kind.relative_attention_num_buckets = 8;
  kind.relative_attention_max_distance = 14;
  expect_cache_changes_nothing(kind, {Layout{}, Layout{.tp = 2}, Layout{.pp = 2}}, 20);
}

// A text that grows beyond the original length is rotated anew from its first token on, with and
// without cached keys.
TEST(Generator, SameTokensWithAndWithoutCacheOverLongRopesBorder) {
  config::ModelConfig kind = test_support::llama_kind();
  kind.position_embedding_type = "longrope";
  kind.longrope_short_factor = {"1", "1.25", "2"};
  kind.longrope_long_factor = {"1.5", "3", "7.5"};
  kind.longrope_original_max_position_embeddings = 12;
  expect_cache_changes_nothing(kind, {Layout{}, Layout{.tp = 2}}, 24);
}

// Layers with other numbers of key heads in the cache, or with none.
TEST(Generator, SameTokensWithAndWithoutCacheOfHeterogeneousLayers) {
  config::ModelConfig kind = test_support::llama_kind();
  kind.num_layers = 4;
  kind.heterogeneous_layers_config_encoded_json = R"({"block_configs": [
    {"attention": {"num_query_groups": 1}, "ffn": {"ffn_hidden_size": 16}},
    {"attention": {"replace_with_linear": true}, "ffn": {"no_op": true}},
    {"attention": {"no_op": true}, "ffn": {"replace_with_linear": true}},
    {"attention": {"num_query_groups": 4}, "ffn": {"ffn_hidden_size": 56}}]})";
  expect_cache_changes_nothing(kind, {Layout{}, Layout{.tp = 2}, Layout{.pp = 2}}, 20);
}

TEST(Generator, GreedyTokensAreTheLargestLogitsOfTheWholeText) {
  with_models("fp64", [](const TinyModel& model) {
    const Generated got =
        model.run(kPrompt, {.sampling = {.temperature = 0.0}, .max_new_tokens = 8});
    Tokens text = kPrompt;
    text.insert(text.end(), got.tokens.begin(), got.tokens.end());
    // One forward over the finished text, by another maker of batches.
    Batch batch = pentatron::test_support::make_batch({{static_cast<std::int64_t>(text.size())}},
                                                      model.config().vocab_size);
    batch.fields["tokens"] =
        tensor::from_vector(std::vector<std::int64_t>(text.begin(), text.end()));
    const tensor::NoGrad no_grad;
    nn::StepContext step{.batch = batch,
                         .policy = model.policy(),
                         .phase = nn::Phase::kEvaluate,
                         .output = nn::StageOutput::kLogits};
    const Tensor logits_tv = model.stages().at(0).forward({}, step).at(0).tensor;
    const Tensor best = logits_tv.narrow(1, 0, model.config().vocab_size).argmax(1);
    for (std::size_t i = 0; i < got.tokens.size(); ++i) {
      const auto row = static_cast<std::int64_t>(kPrompt.size() + i) - 1;
      EXPECT_EQ(best[row].item<std::int64_t>(), got.tokens[i]) << "token " << i;
    }
  });
}

TEST(Generator, EveryLayoutWritesTheSameText) {
  for (const config::ModelConfig& kind : {gpt2_kind(), llama_kind()}) {
    for (const double temperature : {0.0, 1.0}) {
      GenerationOptions options{.sampling = {.temperature = temperature, .seed = 5},
                                .max_new_tokens = 12};
      Tokens expected;
      with_model("fp64", kind, {},
                 [&](const TinyModel& model) { expected = model.run(kPrompt, options).tokens; });
      ASSERT_EQ(expected.size(), 12U);
      for (const Layout& layout : {Layout{.tp = 2}, Layout{.pp = 2}, Layout{.tp = 2, .pp = 2},
                                   Layout{.tp = 2, .pp = 2, .sequence_parallel = true}}) {
        for (const bool use_kv_cache : {true, false}) {
          options.use_kv_cache = use_kv_cache;
          with_model("fp64", kind, layout, [&](const TinyModel& model) {
            EXPECT_EQ(model.run(kPrompt, options).tokens, expected)
                << "tp " << layout.tp << " pp " << layout.pp << " sp " << layout.sequence_parallel
                << " cache " << use_kv_cache;
          });
        }
      }
    }
  }
}

TEST(Generator, VirtualStagesWriteTheSameText) {
  config::ModelConfig kind = gpt2_kind();
  kind.num_layers = 4;
  const GenerationOptions options{.sampling = {.temperature = 0.0}, .max_new_tokens = 8};
  Tokens expected;
  with_model("fp64", kind, {},
             [&](const TinyModel& model) { expected = model.run(kPrompt, options).tokens; });
  with_model("fp64", kind, {.pp = 2, .chunks = 2}, [&](const TinyModel& model) {
    EXPECT_EQ(model.run(kPrompt, options).tokens, expected);
  });
}

TEST(Generator, SampledTextIsAFunctionOfItsArguments) {
  with_models("fp32", [](const TinyModel& model) {
    GenerationOptions options{.sampling = {.temperature = 1.0, .seed = 1}, .max_new_tokens = 20};
    const Tokens first = model.run(kPrompt, options).tokens;
    EXPECT_EQ(model.run(kPrompt, options).tokens, first);
    // A shorter text is its beginning.
    options.max_new_tokens = 7;
    EXPECT_EQ(model.run(kPrompt, options).tokens, Tokens(first.begin(), first.begin() + 7));
    options.max_new_tokens = 20;
    options.sampling.seed = 2;
    EXPECT_NE(model.run(kPrompt, options).tokens, first);
  });
}

TEST(Generator, EndsBeforeAStopToken) {
  with_models("fp32", [](const TinyModel& model) {
    GenerationOptions options{.sampling = {.temperature = 1.0, .seed = 9}, .max_new_tokens = 20};
    const Tokens free = model.run(kPrompt, options).tokens;
    const std::int32_t stop = free.at(10);
    const auto place = std::find(free.begin(), free.end(), stop);
    // A token that never comes stands beside it.
    options.stop_tokens = {-5, stop};
    const Generated stopped = model.run(kPrompt, options);
    EXPECT_EQ(stopped.reason, FinishReason::kStopToken);
    EXPECT_EQ(stopped.tokens, Tokens(free.begin(), place));
    // In the prompt it stops nothing.
    options.stop_tokens = {kPrompt.at(1)};
    const Generated other = model.run(kPrompt, options);
    EXPECT_EQ(other.tokens, Tokens(free.begin(), std::find(free.begin(), free.end(), kPrompt[1])));
  });
}

TEST(Generator, TheSinkSeesEachTokenAndMayEnd) {
  with_models("fp32", [](const TinyModel& model) {
    const GenerationOptions options{.sampling = {.temperature = 1.0}, .max_new_tokens = 12};
    Tokens seen;
    const Generated all = model.run(kPrompt, options, [&](std::int32_t token) {
      seen.push_back(token);
      return true;
    });
    EXPECT_EQ(seen, all.tokens);
    EXPECT_EQ(all.reason, FinishReason::kLength);
    seen.clear();
    const Generated ended = model.run(kPrompt, options, [&](std::int32_t token) {
      seen.push_back(token);
      return seen.size() < 3;
    });
    EXPECT_EQ(ended.reason, FinishReason::kStopText);
    EXPECT_EQ(ended.tokens, Tokens(all.tokens.begin(), all.tokens.begin() + 3));
    EXPECT_EQ(seen, ended.tokens);
  });
}

TEST(Generator, WhatDoesNotFitIsRefused) {
  with_models("fp32", [](const TinyModel& model) {
    // 5 + 43 fit exactly (above); one more does not.
    expect_error(ErrorKind::kConfig, "5 prompt tokens and 44 new ones are more than the model's 48",
                 [&] { (void)model.run(kPrompt, {.max_new_tokens = 44}); });
    expect_error(ErrorKind::kConfig, "no token",
                 [&] { (void)model.run({}, {.max_new_tokens = 1}); });
    for (const std::int32_t bad : {-1, 61}) {  // 61 to 63 are padding rows
      expect_error(ErrorKind::kData, "outside the vocabulary of 61", [&] {
        (void)model.run({1, bad}, {.max_new_tokens = 1});
      });
    }
    expect_error(ErrorKind::kConfig, "--temperature", [&] {
      (void)model.run(kPrompt, {.sampling = {.temperature = -1}, .max_new_tokens = 1});
    });
    EXPECT_TRUE(model.run(kPrompt, {.max_new_tokens = 0}).tokens.empty());
  });
}

TEST(Generator, DamagedWeightsAreAnErrorNotAText) {
  with_models("fp32", [](const TinyModel& model) {
    {
      const tensor::NoGrad no_grad;
      model.stages().parameters().back()->data().fill_(std::nan(""));
    }
    expect_error(ErrorKind::kData, "are the weights damaged?",
                 [&] { (void)model.run(kPrompt, {.max_new_tokens = 1}); });
  });
}

}  // namespace
}  // namespace pentatron::inference
