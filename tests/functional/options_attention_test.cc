// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>

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

}  // namespace pentatron::functional
