// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>

#include "tests/functional/tiny_run.h"

// Each test fails when the program ignores the option that it is named after.
namespace pentatron::functional {

TEST(Options, AlibiForms) {
  // Slopes of 16 heads have more bits than bf16.
  const Options alibi = base()
                            .with("--position-embedding-type", "alibi")
                            .with("--num-attention-heads", 16)
                            .with("--kv-channels", 4);
  const Options scaled = alibi.with("--alibi-scale", "0.25");
  const Options narrow = scaled.with("--alibi-in-bf16");
  EXPECT_NE(train(scaled).first_loss(), train(alibi).first_loss());
  EXPECT_NE(train(narrow).first_loss(), train(scaled).first_loss());
  EXPECT_EQ(train(alibi.with("--alibi-scale", "1")).first_loss(), train(alibi).first_loss());
  expect_no_effect(train(base().with("--alibi-scale", "0.25")).program, "--alibi-scale");
  expect_no_effect(train(base().with("--alibi-in-bf16")).program, "--alibi-in-bf16");
}

TEST(Options, QkClip) {
  const Options clip = base().with("--qk-clip").with("--qk-clip-threshold", "0.001");
  const TinyRun plain = train(base()), clipped = train(clip);
  EXPECT_EQ(clipped.first_loss(), plain.first_loss()) << "the first update comes after it";
  EXPECT_NE(clipped.last_loss(), plain.last_loss());
  EXPECT_NE(train(clip.with("--qk-clip-alpha", "0.9")).last_loss(), clipped.last_loss());
  EXPECT_NE(train(clip.with("--qk-clip-threshold", "0.002")).last_loss(), clipped.last_loss());
  EXPECT_EQ(train(base().with("--qk-clip")).losses(), plain.losses()) << "no logit is above 100";
  // Both together; the log is told before and after clipping alike.
  const Options logging = clip.with("--log-max-attention-logit");
  EXPECT_EQ(train(logging).losses(), clipped.losses());
  EXPECT_EQ(
      train(logging).series("train", "max_attention_logit").at(0),
      train(base().with("--log-max-attention-logit")).series("train", "max_attention_logit").at(0));
  expect_same_losses(train(clip.with("--tensor-model-parallel-size", 2)
                               .with("--distributed-backend", "threads")
                               .with("--world-size", 2)),
                     clipped, 1e-5);

  expect_no_effect(train(base().with("--qk-clip-threshold", "7")).program, "--qk-clip-threshold");
  expect_no_effect(train(base().with("--qk-clip-alpha", "0.7")).program, "--qk-clip-alpha");
  const auto refused = [&](const Options& options, const std::vector<std::string>& parts) {
    expect_refusal(try_train(options).program, 2, parts);
  };
  refused(clip.with("--qk-clip-alpha", "1"), {"--qk-clip-alpha", "above 0 and below 1"});
  refused(clip.with("--qk-clip-threshold", "0"), {"--qk-clip-threshold", "above 0"});
  refused(clip.with("--qk-layernorm"), {"--qk-clip", "--qk-layernorm", "drop one"});
  refused(clip.with("--qk-l2-norm"), {"--qk-clip", "--qk-l2-norm", "drop one"});
  refused(clip.with("--lora-rank", 2), {"--qk-clip", "--lora-rank 2"});
  refused(base().with("--qk-clip").with("--attn-logit-softcapping", "50"),
          {"--qk-clip-threshold 100", "--attn-logit-softcapping is 50"});
}

TEST(Options, QkClipResumesBitForBit) {
  const Options run = base()
                          .with("--bf16")
                          .with("--qk-clip")
                          .with("--qk-clip-threshold", "0.001")
                          .with("--train-iters", 4);
  const std::filesystem::path whole = new_folder(), broken = new_folder();
  const std::vector<double> losses = train(saving(run, whole, 2)).losses();
  (void)train(saving(run.with("--exit-interval", 2), broken, 2));
  EXPECT_EQ(train(resuming(run, broken, 2)).losses(),
            (std::vector<double>{losses.begin() + 2, losses.end()}));
  EXPECT_EQ(state_hash(broken, 4), state_hash(whole, 4));
}

namespace {

Options latent() {
  return base()
      .with("--multi-latent-attention")
      .with("--kv-lora-rank", 6)
      .with("--qk-head-dim", 8)
      .with("--qk-pos-emb-head-dim", 4)
      .with("--v-head-dim", 5);
}

std::map<std::string, std::vector<std::int64_t>> shapes_of_attention(const Options& options) {
  const std::filesystem::path folder = new_folder();
  (void)train(saving(options.with("--train-iters", 1), folder));
  std::map<std::string, std::vector<std::int64_t>> shapes;
  const std::string prefix = "param/decoder.layers.0.self_attention.";
  for (const auto& [name, shape] : saved_shapes(folder, 1)) {
    if (name.starts_with(prefix)) shapes[name.substr(prefix.size())] = shape;
  }
  return shapes;
}

}  // namespace

TEST(Options, MultiLatentAttention) {
  using Shapes = std::map<std::string, std::vector<std::int64_t>>;
  const Options queries = latent().with("--q-lora-rank", 7);
  const Options norms = queries.with("--qk-layernorm");
  const Options scaled = latent().with("--rotary-scaling-factor", 8);
  const std::vector<Options> runs = {base(),
                                     latent(),
                                     queries,
                                     norms,
                                     scaled,
                                     latent().with("--kv-lora-rank", 3),
                                     latent().with("--qk-head-dim", 2),
                                     latent().with("--qk-pos-emb-head-dim", 2),
                                     latent().with("--v-head-dim", 9),
                                     scaled.with("--rope-type", "rope").with("--mscale-all-dim", 1),
                                     scaled.with("--mscale", 2),
                                     scaled.with("--mscale-all-dim", 1)};
  std::set<double> losses;
  for (const TinyRun& run : train_all(runs)) losses.insert(run.first_loss());
  EXPECT_EQ(losses.size(), runs.size());
  // YaRN by a factor of 1, and plain angles, which no factor changes.
  EXPECT_EQ(train(latent().with("--rope-type", "rope")).losses(), train(latent()).losses());
  EXPECT_EQ(train(scaled.with("--rope-type", "rope")).losses(), train(latent()).losses());

  EXPECT_EQ(shapes_of_attention(latent().with("--disable-bias-linear")),
            (Shapes{{"linear_q_proj.weight", {24, 16}},
                    {"linear_kv_down_proj.weight", {10, 16}},
                    {"linear_kv_up_proj.weight", {26, 6}},
                    {"linear_proj.weight", {16, 10}}}));
  EXPECT_EQ(shapes_of_attention(norms.with("--normalization", "RMSNorm")),
            (Shapes{{"linear_q_down_proj.weight", {7, 16}},
                    {"q_layernorm.weight", {7}},
                    {"linear_q_up_proj.weight", {24, 7}},
                    {"linear_kv_down_proj.weight", {10, 16}},
                    {"kv_layernorm.weight", {6}},
                    {"linear_kv_up_proj.weight", {26, 6}},
                    {"linear_proj.weight", {16, 10}},
                    {"linear_proj.bias", {16}}}));

  for (const auto& [option, value] : {std::pair{"--q-lora-rank", "7"},
                                      {"--kv-lora-rank", "6"},
                                      {"--qk-head-dim", "8"},
                                      {"--qk-pos-emb-head-dim", "4"},
                                      {"--v-head-dim", "5"},
                                      {"--rope-type", "rope"}}) {
    expect_no_effect(train(base().with(option, value)).program, option);
  }
  expect_no_effect(train(latent().with("--kv-channels", 4)).program, "--kv-channels");
  expect_no_effect(train(latent().with("--no-rope-freq", 2)).program, "--no-rope-freq");
  expect_refusal(try_train(latent().with("--cache-mla-latents")).program, 2,
                 {"--cache-mla-latents"});
}

// Megatron-LM's list gpt3_mcore_te_tp2_pp2_mla with small sizes: four ranks train, stop and go on
// with every bit, and one process has their losses.
TEST(Options, MultiLatentAttentionResumesBitForBit) {
  const Options model = base()
                            .with("--num-layers", 4)
                            .with("--hidden-size", 32)
                            .with("--num-attention-heads", 8)
                            .with("--multi-latent-attention")
                            .with("--q-lora-rank", 12)
                            .with("--kv-lora-rank", 8)
                            .with("--qk-head-dim", 4)
                            .with("--qk-pos-emb-head-dim", 2)
                            .with("--v-head-dim", 4)
                            .with("--untie-embeddings-and-output-weights")
                            .with("--attention-softmax-in-fp32")
                            .with("--no-gradient-accumulation-fusion")
                            .with("--transformer-impl", "transformer_engine")
                            .with("--use-mcore-models")
                            .with("--attention-backend", "unfused")
                            .with("--deterministic-mode")
                            .with("--log-params-norm")
                            .with("--log-num-zeros-in-grad")
                            .with("--global-batch-size", 8)
                            .with("--train-iters", 4);
  const Options ranks = model.with("--tensor-model-parallel-size", 2)
                            .with("--pipeline-model-parallel-size", 2)
                            .with("--sequence-parallel")
                            .with("--distributed-backend", "threads")
                            .with("--world-size", 4);
  expect_same_losses(train(ranks.with("--fp64")), train(model.with("--fp64")), 1e-11);

  const Options run = ranks.with("--bf16")
                          .with("--hidden-dropout", "0.1")
                          .with("--attention-dropout", "0.1")
                          .with("--ckpt-format", "torch_dist")
                          .with("--async-save");
  const std::filesystem::path whole = new_folder(), broken = new_folder();
  const std::vector<double> losses = train(saving(run, whole, 2)).losses();
  (void)train(saving(run.with("--exit-interval", 2), broken, 2));
  EXPECT_EQ(train(resuming(run, broken, 2)).losses(),
            (std::vector<double>{losses.begin() + 2, losses.end()}));
  EXPECT_EQ(state_hash(broken, 4), state_hash(whole, 4));
}

}  // namespace pentatron::functional
