// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "pentatron/base/error.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/training/engine.h"
#include "pentatron/training/log_format.h"
#include "pentatron/training/model_parts.h"
#include "pentatron/training/test_support.h"

// Faults that users of this field reported in public; docs/public_faults.md lists them all.
namespace pentatron::training {
namespace {

using namespace testing_support;  // NOLINT: test vocabulary

double valid_tokens(const Batch& batch) {
  return batch.loss_mask().sum(DType::Double).item<double>();
}

config::RunConfig one_rank_fp64() {
  return tiny_config({}, [](config::RunConfig& config) {
    config.training.precision = "fp64";
    config.model.hidden_dropout = 0;
    config.model.attention_dropout = 0;
  });
}

// Micro-batches with different counts of valid tokens: the mean over all tokens, not of the means.
TEST(Cases, PaiMegatronPatch_588) {
  with_engine(one_rank_fp64(), [](Engine& engine) {
    const std::vector<Batch> batches = micro_batches(engine, 0);
    ASSERT_GE(batches.size(), 2U);
    double sum = 0;
    double count = 0;
    double mean_of_means = 0;
    for (const Batch& batch : batches) {
      const StepResult alone = engine.forward_backward({batch});
      sum += alone.loss * valid_tokens(batch);
      count += valid_tokens(batch);
      mean_of_means += alone.loss / static_cast<double>(batches.size());
    }
    const StepResult together = engine.forward_backward(batches);
    EXPECT_NEAR(together.loss, sum / count, 1e-12 * sum / count);
    EXPECT_GT(std::abs(together.loss - mean_of_means), 1e-6 * mean_of_means);
  });
}

// A micro-batch whose tokens are all masked contributes nothing, and no NaN.
TEST(Cases, BigscienceMegatronDeepSpeed_169) {
  with_engine(one_rank_fp64(), [](Engine& engine) {
    std::vector<Batch> batches = micro_batches(engine, 0);
    const StepResult without = engine.forward_backward({batches[0]});
    const Tensors expected = engine.gather_gradients();
    batches.resize(2);
    batches[1].loss_mask().zero_();
    const StepResult with = engine.forward_backward(batches);
    EXPECT_TRUE(with.finite);
    EXPECT_EQ(with.loss, without.loss);
    EXPECT_EQ(with.num_valid_tokens, without.num_valid_tokens);
    EXPECT_EQ(first_difference(engine.gather_gradients(), expected), "");
  });
}

// A hand count for a gated MLP with grouped queries and a tied head, every product by itself.
TEST(Cases, MegatronLM_682) {
  // Width 64, 8 query heads and 2 kv heads of 8, ffn 160 gated, 3 layers, vocabulary 512; 2 samples
  // of 32.
  const double tokens = 64;
  const double per_token = 2 * 64 * (64 + 16 + 16)  // q, k, v
                           + 2 * 64 * 64            // output projection
                           + 2 * 64 * 160 * 2       // gate, up
                           + 2 * 160 * 64;          // down
  const double attention =
      2.0 * 2 * 32 * 32 * 64;  // scores and values of both samples, causal half
  const double forward = 3 * (tokens * per_token + attention) + tokens * 2 * 64 * 512;
  const FlopsInput in{.tokens = tokens,
                      .sum_squared_lengths = 2 * 32 * 32,
                      .num_layers = 3,
                      .hidden = 64,
                      .ffn_hidden = 160,
                      .query_projection = 64,
                      .kv_projection = 16,
                      .padded_vocab = 512,
                      .swiglu = true};
  EXPECT_DOUBLE_EQ(model_flops(in), 3 * forward);
}

// A checkpoint with one tensor too many and one too few: both are listed, nothing is filled
// silently.
TEST(Cases, MegatronBridge_6032) {
  with_engine(one_rank_fp64(), [](Engine& engine) {
    const ModelParts parts = model_parts(engine);
    checkpoint::Manifest manifest;
    const auto add = [&](const std::string& name) { manifest.tensors.emplace_back().name = name; };
    for (const auto& [name, decay] : parts) add(name);
    add("exp_avg/anything");
    EXPECT_NO_THROW(check_part_names(parts, manifest, "folder"));
    ASSERT_EQ(manifest.tensors.front().name, "param/decoder.final_layernorm.bias");
    manifest.tensors.front().name = "param/lora.down.weight";
    try {
      check_part_names(parts, manifest, "folder");
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kCheckpoint);
      const std::string text = error.what();
      EXPECT_NE(text.find("has not: param/decoder.final_layernorm.bias."), std::string::npos)
          << text;
      EXPECT_NE(text.find("no place for: param/lora.down.weight."), std::string::npos) << text;
    }
  });
}

// Weights after a few steps with dropout, every layer recomputed or none.
Tensors trained(bool recompute) {
  Tensors weights;
  const auto change = [&](config::RunConfig& config) {
    config.model.hidden_dropout = 0.3;
    config.model.attention_dropout = 0.3;
    if (!recompute) return;
    config.model.recompute_granularity = "full";
    config.model.recompute_method = "uniform";
    config.model.recompute_num_layers = 1;
  };
  with_engine(tiny_config({}, change), [&](Engine& engine) {
    (void)train_steps(engine, 0, 3);
    weights = engine.gather_parameters();
  });
  return weights;
}

// The second forward draws the masks of the first.
TEST(Cases, OLMoCore_828) { EXPECT_EQ(first_difference(trained(true), trained(false)), ""); }

// Several micro-batches in flight on stages: each is recomputed from its own input and batch.
TEST(Cases, MegatronLM_290) {
  const auto gradients = [](bool recompute) {
    Tensors whole;
    const auto change = [&](config::RunConfig& config) {
      config.training.micro_batch_size = 1;
      if (!recompute) return;
      config.model.recompute_granularity = "full";
      config.model.recompute_method = "block";
      config.model.recompute_num_layers = 1;
    };
    std::mutex mutex;
    with_engine(tiny_config({.pp = 2}, change), [&](Engine& engine) {
      (void)engine.forward_backward(micro_batches(engine, 0));
      Tensors mine = engine.gather_gradients();
      const std::lock_guard lock(mutex);
      whole = std::move(mine);
    });
    return whole;
  };
  EXPECT_EQ(first_difference(gradients(true), gradients(false)), "");
}

}  // namespace
}  // namespace pentatron::training
