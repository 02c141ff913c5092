// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "pentatron/base/file.h"
#include "tests/functional/tiny_run.h"

// Each test fails when the program ignores the option that it is named after.
namespace pentatron::functional {
namespace {

using Shape = std::vector<std::int64_t>;
using Words = std::vector<std::string>;
using Shapes = std::map<std::string, Shape>;

constexpr const char* kLayer = "param/decoder.layers.0.";

Shapes shapes_of(const Options& options) {
  const std::filesystem::path folder = new_folder();
  const TinyRun run = train(saving(options.with("--train-iters", 1), folder));
  return saved_shapes(folder, 1);
}

Shape shape(const Shapes& shapes, const std::string& name) {
  const auto found = shapes.find(name);
  return found == shapes.end() ? Shape{} : found->second;
}

Shape in_layer(const Shapes& shapes, const std::string& name) {
  return shape(shapes, kLayer + name);
}

}  // namespace

TEST(Options, ModelShape) {
  const Shapes plain = shapes_of(base());
  EXPECT_EQ(shape(plain, "param/embedding.word_embeddings.weight"), (Shape{64, 16}));
  EXPECT_EQ(shape(plain, "param/embedding.position_embeddings.weight"), (Shape{16, 16}));
  EXPECT_EQ(in_layer(plain, "self_attention.linear_qkv.q.weight"), (Shape{16, 16}));
  EXPECT_EQ(in_layer(plain, "mlp.linear_fc1.weight"), (Shape{64, 16}));
  EXPECT_EQ(in_layer(plain, "mlp.linear_fc2.bias"), (Shape{16}));
  EXPECT_EQ(in_layer(plain, "input_layernorm.bias"), (Shape{16}));
  EXPECT_TRUE(plain.contains("param/decoder.layers.1.mlp.linear_fc1.weight"));
  EXPECT_FALSE(plain.contains("param/decoder.layers.2.mlp.linear_fc1.weight"));
  EXPECT_FALSE(plain.contains("param/output_layer.weight"));

  const Shapes deep = shapes_of(base().with("--num-layers", 3));
  EXPECT_TRUE(deep.contains("param/decoder.layers.2.mlp.linear_fc1.weight"));
  const Shapes wide = shapes_of(base().with("--hidden-size", 32));
  EXPECT_EQ(shape(wide, "param/embedding.word_embeddings.weight"), (Shape{64, 32}));
  EXPECT_EQ(in_layer(wide, "mlp.linear_fc1.weight"), (Shape{128, 32}));
  const Shapes positions = shapes_of(base().with("--max-position-embeddings", 20));
  EXPECT_EQ(shape(positions, "param/embedding.position_embeddings.weight"), (Shape{20, 16}));
  const Shapes ffn = shapes_of(base().with("--ffn-hidden-size", 24));
  EXPECT_EQ(in_layer(ffn, "mlp.linear_fc1.weight"), (Shape{24, 16}));
  const Shapes channels = shapes_of(base().with("--kv-channels", 12));
  EXPECT_EQ(in_layer(channels, "self_attention.linear_qkv.q.weight"), (Shape{24, 16}));
  EXPECT_EQ(in_layer(channels, "self_attention.linear_proj.weight"), (Shape{16, 24}));

  const Options four_heads = base().with("--num-attention-heads", 4);
  EXPECT_NE(train(four_heads).first_loss(), train(base()).first_loss());
  const Options grouped = four_heads.with("--group-query-attention");
  EXPECT_EQ(in_layer(shapes_of(grouped), "self_attention.linear_qkv.k.weight"), (Shape{4, 16}));
  const Shapes groups = shapes_of(grouped.with("--num-query-groups", 2));
  EXPECT_EQ(in_layer(groups, "self_attention.linear_qkv.q.weight"), (Shape{16, 16}));
  EXPECT_EQ(in_layer(groups, "self_attention.linear_qkv.v.weight"), (Shape{8, 16}));

  const Shapes untied = shapes_of(base().with("--untie-embeddings-and-output-weights"));
  EXPECT_EQ(shape(untied, "param/output_layer.weight"), (Shape{64, 16}));
  const Shapes rms = shapes_of(base().with("--normalization", "RMSNorm"));
  EXPECT_EQ(in_layer(rms, "input_layernorm.weight"), (Shape{16}));
  EXPECT_FALSE(rms.contains("param/decoder.layers.0.input_layernorm.bias"));
  const Shapes gated = shapes_of(base().with("--swiglu").with("--ffn-hidden-size", 24));
  EXPECT_EQ(in_layer(gated, "mlp.linear_fc1.gate.weight"), (Shape{24, 16}));
  EXPECT_EQ(in_layer(gated, "mlp.linear_fc1.up.weight"), (Shape{24, 16}));
  const Options unbiased = base().with("--disable-bias-linear");
  const Shapes without = shapes_of(unbiased);
  EXPECT_FALSE(without.contains("param/decoder.layers.0.mlp.linear_fc2.bias"));
  EXPECT_FALSE(without.contains("param/decoder.layers.0.self_attention.linear_qkv.q.bias"));
  const Shapes qkv = shapes_of(unbiased.with("--add-qkv-bias"));
  EXPECT_FALSE(qkv.contains("param/decoder.layers.0.mlp.linear_fc2.bias"));
  EXPECT_EQ(in_layer(qkv, "self_attention.linear_qkv.q.bias"), (Shape{16}));
  const Shapes output = shapes_of(unbiased.with("--add-attention-output-bias"));
  EXPECT_EQ(in_layer(output, "self_attention.linear_proj.bias"), (Shape{16}));
  EXPECT_FALSE(output.contains("param/decoder.layers.0.self_attention.linear_qkv.q.bias"));
  EXPECT_FALSE(output.contains("param/decoder.layers.0.mlp.linear_fc2.bias"));
  const Shapes mlp = shapes_of(unbiased.with("--add-mlp-bias"));
  EXPECT_EQ(in_layer(mlp, "mlp.linear_fc1.bias"), (Shape{64}));
  EXPECT_EQ(in_layer(mlp, "mlp.linear_fc2.bias"), (Shape{16}));
  EXPECT_FALSE(mlp.contains("param/decoder.layers.0.self_attention.linear_proj.bias"));
}

TEST(Options, SeqLength) {
  EXPECT_EQ(train(base()).series("train", "valid_tokens").at(0), 4 * 16);
  EXPECT_EQ(train(base().with("--seq-length", 8)).series("train", "valid_tokens").at(0), 4 * 8);
}

TEST(Options, NormEpsilon) {
  EXPECT_NE(train(base().with("--norm-epsilon", "1e-1")).first_loss(), train(base()).first_loss());
  EXPECT_EQ(train(base().with("--norm-epsilon", "1e-5")).first_loss(), train(base()).first_loss());
}

TEST(Options, PositionEmbeddingType) {
  const double learned = train(base()).first_loss();
  const Options rope = base().with("--position-embedding-type", "rope");
  const Options none = base().with("--position-embedding-type", "none");
  const Options alibi = base().with("--position-embedding-type", "alibi");
  EXPECT_NE(train(alibi).first_loss(), train(none).first_loss());
  EXPECT_FALSE(shapes_of(alibi).contains("param/embedding.position_embeddings.weight"));
  EXPECT_NE(train(rope).first_loss(), learned);
  EXPECT_NE(train(none).first_loss(), learned);
  EXPECT_NE(train(none).first_loss(), train(rope).first_loss());
  EXPECT_FALSE(shapes_of(rope).contains("param/embedding.position_embeddings.weight"));
  EXPECT_FALSE(shapes_of(none).contains("param/embedding.position_embeddings.weight"));
}

TEST(Options, QkNorm) {
  const double plain = train(base()).first_loss();
  const Options layer_norm = base().with("--qk-layernorm");
  const Options l2_norm = base().with("--qk-l2-norm");
  EXPECT_NE(train(layer_norm).first_loss(), plain);
  EXPECT_NE(train(l2_norm).first_loss(), plain);
  EXPECT_TRUE(
      shapes_of(layer_norm).contains("param/decoder.layers.0.self_attention.q_layernorm.weight"));
  EXPECT_FALSE(
      shapes_of(l2_norm).contains("param/decoder.layers.0.self_attention.q_layernorm.weight"));
  const Options rms = layer_norm.with("--normalization", "RMSNorm");
  const Options all_heads = rms.with("--qk-norm-scope", "all-heads");
  EXPECT_NE(train(all_heads).first_loss(), train(rms).first_loss());
  EXPECT_EQ(train(rms.with("--qk-norm-scope", "head")).first_loss(), train(rms).first_loss());
  EXPECT_EQ(in_layer(shapes_of(all_heads), "self_attention.q_layernorm.weight"), (Shape{16}));
  expect_refusal(try_train(layer_norm.with("--qk-norm-scope", "all-heads")).program, 2,
                 {"--qk-norm-scope all-heads", "--normalization RMSNorm"});
  expect_no_effect(train(base().with("--qk-norm-scope", "all-heads")).program, "--qk-norm-scope");
  expect_refusal(try_train(layer_norm.with("--qk-l2-norm")).program, 2,
                 {"--qk-layernorm", "--qk-l2-norm", "exclude each other"});
}

namespace {
// Each changes the first loss, in its own way.
void expect_all_different(const std::vector<Options>& runs) {
  std::set<double> losses;
  for (const Options& run : runs) losses.insert(train(run).first_loss());
  EXPECT_EQ(losses.size(), runs.size());
}
}  // namespace

TEST(Options, RotaryForms) {
  const Options rope =
      base().with("--position-embedding-type", "rope").with("--rotary-base", 500000);
  // Head dimensions of these small models have wavelengths up to 4e6 tokens: all that scaling
  // wants.
  expect_all_different({rope, rope.with("--rotary-interleaved"),
                        rope.with("--rotary-seq-len-interpolation-factor", 2),
                        rope.with("--use-rope-scaling"),
                        rope.with("--use-rope-scaling").with("--rope-scaling-factor", "2.0")});
}

TEST(Options, NoRopeFreq) {
  const Options rope = base().with("--position-embedding-type", "rope");
  expect_all_different({rope, rope.with("--no-rope-freq", 1), rope.with("--no-rope-freq", 2)});
  EXPECT_EQ(train(rope.with("--no-rope-freq", "[0,1]")).first_loss(),
            train(rope.with("--no-rope-freq", 2)).first_loss());
  EXPECT_EQ(train(rope.with("--no-rope-freq", 1)).first_loss(),
            train(base().with("--position-embedding-type", "none")).first_loss());
  expect_refusal(try_train(rope.with("--no-rope-freq", "[0,1,0]")).program, 2,
                 {"--no-rope-freq", "--num-layers"});
}

TEST(Options, WindowSize) {
  // Documents of 6 to 25 tokens in samples of 16; two layers.
  const Options narrow = base().with("--window-size", "3,0");
  expect_all_different(
      {base(), narrow, base().with("--window-size", "4,0"), base().with("--window-size", "0,0"),
       narrow.with("--window-attn-skip-freq", 2), narrow.with("--window-attn-skip-freq", "[0,1]")});
  const double full = train(base()).first_loss();
  EXPECT_EQ(train(base().with("--window-size", "16,0")).first_loss(), full);
  EXPECT_EQ(train(base().with("--window-size", "(-1,-1)")).first_loss(), full);
  EXPECT_EQ(train(narrow.with("--window-attn-skip-freq", 1)).first_loss(), full);
  EXPECT_EQ(train(narrow.with("--window-attn-skip-freq", "[1,0]")).first_loss(),
            train(narrow.with("--window-attn-skip-freq", 2)).first_loss());
  expect_refusal(try_train(base().with("--window-size", "3,1")).program, 2,
                 {"--window-size", "sees no later key"});
  expect_refusal(try_train(base().with("--window-size", "3")).program, 2, {"--window-size"});
  expect_refusal(try_train(narrow.with("--window-attn-skip-freq", "[1]")).program, 2,
                 {"--window-attn-skip-freq", "--num-layers"});
}

TEST(Options, SoftmaxType) {
  const Options learnable = base().with("--softmax-type", "learnable");
  expect_all_different({base(), base().with("--softmax-type", "off-by-one"), learnable});
  EXPECT_EQ(train(base().with("--softmax-type", "vanilla")).losses(), train(base()).losses());
  const std::string sink = "self_attention.core_attention.softmax_offset";
  EXPECT_EQ(in_layer(shapes_of(learnable), sink), (Shape{2}));
  EXPECT_EQ(in_layer(shapes_of(base().with("--softmax-type", "off-by-one")), sink), Shape{});
  // Part of the model that a checkpoint holds.
  const std::filesystem::path folder = new_folder();
  train(saving(learnable.with("--train-iters", 4).with("--exit-interval", 2), folder));
  expect_refusal(try_train(resuming(base().with("--train-iters", 4), folder)).program, 7,
                 {"another model", "softmax_type"});
  EXPECT_EQ(train(resuming(learnable.with("--train-iters", 4), folder)).losses().size(), 2U);
}

TEST(Options, RelativePositions) {
  const Options relative = base().with("--position-embedding-type", "relative");
  EXPECT_NE(train(relative).losses(),
            train(base().with("--position-embedding-type", "none")).losses());
  const std::string table = "param/decoder_relative_pos_emb.relative_attention_bias.weight";
  EXPECT_EQ(shape(shapes_of(relative), table), (Shape{32, 2}));
  EXPECT_EQ(shape(shapes_of(relative.with("--relative-attention-num-buckets", 6)), table),
            (Shape{6, 2}));
  const Options few = relative.with("--relative-attention-num-buckets", 4);
  EXPECT_NE(train(few.with("--relative-attention-max-distance", 3)).losses(),
            train(few.with("--relative-attention-max-distance", 16)).losses());
  expect_refusal(try_train(relative.with("--relative-attention-max-distance", 16)).program, 2,
                 {"--relative-attention-max-distance 16", "32"});
  expect_refusal(try_train(relative.with("--relative-attention-num-buckets", 1)).program, 2,
                 {"--relative-attention-num-buckets"});
}

// Heads of 8 channels: four pairs.
TEST(Options, LongRope) {
  const auto longrope = [](const char* original) {
    return base()
        .with("--position-embedding-type", "longrope")
        .with("--longrope-short-factor", Words{"1", "1", "1", "1"})
        .with("--longrope-long-factor", Words{"2", "3", "4", "5.5"})
        .with("--longrope-original-max-position-embeddings", original);
  };
  // Samples of 16 tokens within the original length and with factors of 1 are rotated as ever.
  const Options rope = base().with("--position-embedding-type", "rope");
  EXPECT_EQ(train(longrope("16")).losses(), train(rope).losses());
  EXPECT_NE(train(longrope("8")).losses(), train(rope).losses());
  EXPECT_NE(
      train(longrope("8")).losses(),
      train(longrope("8").with("--longrope-long-factor", Words{"2", "3", "4", "6"})).losses());
  EXPECT_NE(
      train(longrope("16")).losses(),
      train(longrope("16").with("--longrope-short-factor", Words{"1", "1", "1", "2"})).losses());
  // Documents that do not see each other are texts of their own, counted from 0: some are short.
  const Options whole = longrope("8");
  const Words other{"1", "1", "1", "2"};
  EXPECT_EQ(train(whole).losses(), train(whole.with("--longrope-short-factor", other)).losses());
  const Options apart = whole.with("--reset-attention-mask");
  EXPECT_NE(train(apart).losses(), train(apart.with("--longrope-short-factor", other)).losses());
  EXPECT_EQ(train(apart).losses(), train(apart.with("--reset-position-ids")).losses());
  expect_refusal(try_train(longrope("8").with("--longrope-long-factor", Words{"2", "3"})).program,
                 2, {"--longrope-long-factor: 2 numbers for the 4 pairs"});
  expect_refusal(
      try_train(longrope("8").with("--longrope-long-factor", Words{"1", "1", "1", "0"})).program, 2,
      {"--longrope-long-factor", "'0'"});
  expect_refusal(try_train(base().with("--position-embedding-type", "longrope")).program, 2,
                 {"--longrope-short-factor"});
}

TEST(Options, Mrope) {
  const Options mrope = base().with("--position-embedding-type", "mrope");
  EXPECT_EQ(train(mrope.with("--mrope-section", Words{"1", "2", "1"})).losses(),
            train(base().with("--position-embedding-type", "rope")).losses());
  expect_refusal(try_train(mrope).program, 2, {"--mrope-section", "add up to the 4 pairs"});
  expect_refusal(try_train(mrope.with("--mrope-section", Words{"1", "2", "2"})).program, 2,
                 {"--mrope-section", "add up to 5"});
  expect_refusal(
      try_train(mrope.with("--mrope-section", Words{"1", "2", "1"}).with("--rotary-interleaved"))
          .program,
      2, {"--rotary-interleaved"});
}

TEST(Options, HeterogeneousLayers) {
  const std::string layers =
      R"({"block_configs": [{"attention": {"replace_with_linear": true},
                             "ffn": {"ffn_hidden_size": 24}},
                            {"attention": {"no_op": true}, "mlp": {"no_op": true}}]})";
  const std::filesystem::path folder = new_folder();
  const std::string file = (folder / "layers.json").string();
  write_file_atomically(file, layers);
  const Options of_file = base().with("--heterogeneous-layers-config-path", file);
  const Options of_text = base().with("--heterogeneous-layers-config-encoded-json", layers);
  EXPECT_EQ(train(of_file).losses(), train(of_text).losses());
  EXPECT_NE(train(of_file).losses(), train(base()).losses());
  const Shapes shapes = shapes_of(of_file);
  EXPECT_EQ(in_layer(shapes, "self_attention.weight"), (Shape{16, 16}));
  EXPECT_EQ(in_layer(shapes, "mlp.linear_fc1.weight"), (Shape{24, 16}));
  EXPECT_FALSE(shapes.contains("param/decoder.layers.1.mlp.linear_fc1.weight"));
  // A checkpoint carries the layers: other ones are another model, and --use-checkpoint-args needs
  // no file.
  const std::filesystem::path run = new_folder();
  const Options four = of_file.with("--train-iters", 4);
  train(saving(four.with("--exit-interval", 2), run));
  expect_refusal(try_train(resuming(base().with("--train-iters", 4), run)).program, 7,
                 {"another model", "heterogeneous_layers_config_encoded_json"});
  std::filesystem::remove(file);
  const Options text = of_text.with("--train-iters", 4);
  EXPECT_EQ(train(resuming(text, run)).losses().size(), 2U);
  expect_refusal(try_train(of_file).program, 2, {"layers.json"});
  expect_refusal(
      try_train(base().with("--heterogeneous-layers-config-encoded-json", "{\"a\": 1}")).program, 2,
      {"block_configs"});
}

TEST(Options, SoftmaxScale) {
  const double usual = train(base()).first_loss();  // heads of 8 channels
  EXPECT_NE(train(base().with("--softmax-scale", "0.5")).first_loss(), usual);
  EXPECT_EQ(train(base().with("--softmax-scale", "0.35355339059327373")).first_loss(), usual);
  expect_refusal(try_train(base().with("--softmax-scale", "0")).program, 2, {"--softmax-scale"});
}

TEST(Options, AttnLogitSoftcapping) {
  expect_all_different({base(), base().with("--attn-logit-softcapping", "0.05"),
                        base().with("--attn-logit-softcapping", "0.5")});
  expect_refusal(try_train(base().with("--attn-logit-softcapping", "0")).program, 2,
                 {"--attn-logit-softcapping"});
}

TEST(Options, AttentionOutputGate) {
  const Options gated = base().with("--attention-output-gate");
  expect_all_different({base(), gated});
  const Shapes shapes = shapes_of(gated);
  EXPECT_EQ(in_layer(shapes, "self_attention.linear_qkv.gate.weight"), (Shape{16, 16}));
  EXPECT_EQ(in_layer(shapes, "self_attention.linear_qkv.gate.bias"), (Shape{16}));
}

TEST(Options, Activations) {
  const Options gated = base().with("--quick-geglu");
  const Options swiglu = base().with("--swiglu").with("--ffn-hidden-size", 64);
  const Options geglu = base().with("--geglu");
  expect_all_different({geglu, geglu.with("--glu-linear-offset", "1.0"), base(),
                        base().with("--squared-relu"), base().with("--no-bias-gelu-fusion"), gated,
                        gated.with("--glu-linear-offset", "1.0"),
                        gated.with("--activation-func-clamp-value", "0.001"), swiglu,
                        swiglu.with("--glu-linear-offset", "1.0")});
  // The tanh form, which biases have by default.
  const Options unfused = base().with("--no-bias-gelu-fusion");
  EXPECT_EQ(train(unfused.with("--openai-gelu")).first_loss(), train(base()).first_loss());
  const Options unbiased = base().with("--disable-bias-linear");
  EXPECT_NE(train(unbiased.with("--openai-gelu")).first_loss(), train(unbiased).first_loss());
  expect_refusal(try_train(gated.with("--squared-relu")).program, 2, {"--squared-relu", "exclude"});
  expect_refusal(try_train(geglu.with("--swiglu").with("--openai-gelu")).program, 2,
                 {"--swiglu, --geglu, --openai-gelu exclude each other"});
}

TEST(Options, EmbeddingMultiplier) {
  expect_all_different({base(), base().with("--embedding-multiplier", "4.0"),
                        base().with("--embedding-multiplier", "2.0")});
  EXPECT_EQ(train(base().with("--embedding-multiplier", "1.0")).first_loss(),
            train(base()).first_loss());
}

TEST(Options, ApplyQueryKeyLayerScaling) {
  const TinyRun run = train(base().with("--apply-query-key-layer-scaling"));
  EXPECT_EQ(run.losses(), train(base()).losses());
  expect_no_effect(run.program, "--apply-query-key-layer-scaling");
}

TEST(Options, Mup) {
  const Options mup = base().with("--use-mup");
  const Options wide = mup.with("--mup-base-hidden-size", 4);
  // 8 channels a head: without --mup-base-head-dim scores are divided by 8.
  expect_all_different({base(), mup, wide, mup.with("--mup-embedding-mult", "2.0"),
                        mup.with("--mup-output-mult", "0.5"),
                        mup.with("--mup-base-head-dim", "4.0"),
                        mup.with("--mup-attn-scale-power", "0.75")});
  EXPECT_EQ(train(mup.with("--mup-attn-scale-power", "0.5")).losses(), train(base()).losses());
  EXPECT_EQ(train(mup.with("--mup-base-head-dim", "8")).losses(), train(base()).losses());
  EXPECT_EQ(train(mup).losses(), train(base().with("--softmax-scale", "0.125")).losses());
  EXPECT_EQ(train(wide.with("--mup-width-mult", "4.0")).losses(), train(wide).losses());
  expect_refusal(try_train(wide.with("--mup-width-mult", "2.0")).program, 2,
                 {"--mup-width-mult 2", "--mup-base-hidden-size 4"});
  EXPECT_NE(train(wide).program.out.find("width 4 x the base, learning rate x 0.25"),
            std::string::npos);
  // A resumed run goes on to the bit.
  const std::filesystem::path folder = new_folder();
  (void)train(saving(wide.with("--exit-interval", 2), folder));
  EXPECT_EQ(train(resuming(wide, folder)).last_loss(), train(wide).last_loss());
}

TEST(Options, FinalLogitSoftcapping) {
  expect_all_different({base(), base().with("--final-logit-softcapping", "1.0"),
                        base().with("--final-logit-softcapping", "0.5")});
  // Logits of almost nothing leave all tokens as likely.
  EXPECT_NEAR(train(base().with("--final-logit-softcapping", "1e-6")).first_loss(), std::log(64.0),
              1e-5);
}

TEST(Options, LabelSmoothing) {
  const Options plain = base().with("--eval-interval", 3).with("--eval-iters", 1);
  const Options smoothed = plain.with("--label-smoothing", "0.2");
  expect_all_different({plain, smoothed, plain.with("--label-smoothing", "0.1")});
  // Every layout trains on the same loss.
  const Options split = smoothed.with("--tensor-model-parallel-size", 2)
                            .with("--world-size", 2)
                            .with("--distributed-backend", "threads");
  const TinyRun one = train(smoothed);
  const TinyRun two = train(split);
  expect_same_losses(two, one, 1e-5);
  // Evaluations tell the plain loss: before anything has been learnt, that of a plain run.
  const auto evaluated = [](const Options& options) {
    return train(options.with("--lr", "1e-12").with("--min-lr", 0))
        .series("validation", "lm_loss")
        .at(0);
  };
  EXPECT_NEAR(evaluated(smoothed), evaluated(plain), 1e-6);
  expect_refusal(try_train(plain.with("--label-smoothing", 1)).program, 2, {"--label-smoothing"});
  // Another loss is another run.
  const std::filesystem::path folder = new_folder();
  (void)train(saving(smoothed.with("--exit-interval", 2), folder));
  expect_refusal(try_train(resuming(plain, folder)).program, 7,
                 {"label_smoothing 0.2 in the checkpoint, 0.0 asked"});
}

TEST(Options, Fp32ResidualConnection) {
  const Options bf16 = base().with("--bf16");
  const Options wide = bf16.with("--fp32-residual-connection");
  EXPECT_NE(train(wide).losses(), train(bf16).losses());
  expect_same_losses(train(wide), train(base()), 0.02);
  // Stages send what one stage keeps.
  const Options staged = wide.with("--pipeline-model-parallel-size", 2)
                             .with("--world-size", 2)
                             .with("--distributed-backend", "threads");
  EXPECT_EQ(train(staged).first_loss(), train(wide).first_loss());
  expect_no_effect(train(base().with("--fp32-residual-connection")).program,
                   "--fp32-residual-connection");
}

TEST(Options, RotaryBaseLocal) {
  const Options rope = base().with("--position-embedding-type", "rope");
  expect_no_effect(train(rope.with("--rotary-base-local", 100)).program, "--rotary-base-local");
}

TEST(Options, Yarn) {
  const Options yarn =
      base().with("--position-embedding-type", "yarn").with("--rotary-scaling-factor", "8.0");
  // Of the four pairs of a head those from 0.7 to 2.2 are mixed, rounded from 0 to 3.
  const Options all = yarn.with("--yarn-original-max-position-embeddings", 1024);
  const Options unrounded = all.with("--no-yarn-correction-range-round-to-int");
  expect_all_different({yarn, all, all.with("--yarn-beta-slow", "0.05"), unrounded,
                        unrounded.with("--yarn-beta-fast", "8.0"), all.with("--mscale", "2.0"),
                        all.with("--mscale-all-dim", "0.5"),
                        all.with("--rotary-scaling-factor", "4.0"), all.with("--rotary-base", 100),
                        all.with("--rotary-percent", "0.5"), all.with("--rotary-interleaved")});
  // A factor of 1 changes nothing.
  EXPECT_EQ(train(all.with("--rotary-scaling-factor", "1.0")).first_loss(),
            train(base().with("--position-embedding-type", "rope")).first_loss());
  expect_no_effect(train(all.with("--use-rope-scaling")).program, "--use-rope-scaling");
  expect_no_effect(train(base().with("--mscale", "2.0")).program, "--mscale");
  expect_refusal(try_train(all.with("--yarn-beta-slow", "40.0")).program, 2,
                 {"--yarn-beta-fast 32", "--yarn-beta-slow 40"});
}

TEST(Options, NormPlacement) {
  const Options post = base().with("--norm-placement", "post");
  const Options both = base().with("--norm-placement", "both");
  const std::string after = "--apply-residual-connection-post-layernorm";
  expect_all_different({base(), post, both, base().with(after), both.with(after)});
  EXPECT_EQ(train(base().with("--norm-placement", "pre")).first_loss(), train(base()).first_loss());
  const auto norms = [](const Options& options) {
    std::set<std::string> names;
    for (const auto& [name, shape] : shapes_of(options)) {
      if (name.starts_with(kLayer) && name.ends_with("layernorm.weight")) {
        names.insert(name.substr(std::string(kLayer).size()));
      }
    }
    return names;
  };
  const std::set<std::string> outputs = {"post_self_attn_layernorm.weight",
                                         "post_mlp_layernorm.weight"};
  EXPECT_EQ(norms(post), outputs);
  std::set<std::string> all = outputs;
  all.insert({"input_layernorm.weight", "pre_mlp_layernorm.weight"});
  EXPECT_EQ(norms(both), all);
  expect_refusal(try_train(post.with(after)).program, 2, {after, "--norm-placement post"});
}

TEST(Options, ParallelAttention) {
  const Options shared = base().with("--parallel-attention", "shared-norm");
  const Options own = base().with("--parallel-attention", "own-norms");
  // Equal at first, when both norms are; then each learns by itself.
  EXPECT_EQ(train(shared).first_loss(), train(own).first_loss());
  EXPECT_NE(train(shared).first_loss(), train(base()).first_loss());
  EXPECT_NE(train(shared).last_loss(), train(own).last_loss());
  EXPECT_FALSE(shapes_of(shared).contains("param/decoder.layers.0.pre_mlp_layernorm.weight"));
  EXPECT_TRUE(shapes_of(own).contains("param/decoder.layers.0.pre_mlp_layernorm.weight"));
  expect_refusal(try_train(own.with("--norm-placement", "both")).program, 2,
                 {"--parallel-attention own-norms", "--norm-placement pre"});
  expect_refusal(try_train(own.with("--apply-residual-connection-post-layernorm")).program, 2,
                 {"--apply-residual-connection-post-layernorm", "--parallel-attention", "exclude"});
}

TEST(Options, LayerNorm1p) {
  // Weights that start at 0 and are used as 1 + weight begin as ones do, but are no ones.
  const Options plain = base().with("--log-params-norm");
  const TinyRun centred = train(plain.with("--apply-layernorm-1p"));
  EXPECT_EQ(centred.first_loss(), train(plain).first_loss());
  const auto params_norm = [](const TinyRun& run) {
    const std::string line = run.iteration_lines().at(0);
    const std::string key = "params norm: ";
    return std::stod(line.substr(line.find(key) + key.size()));
  };
  EXPECT_GT(params_norm(train(plain)), params_norm(centred) + 0.1);
}

TEST(Options, InitMethods) {
  expect_all_different(
      {base(), base().with("--embedding-init-method-std", "0.1"),
       base().with("--init-method-xavier-uniform"),
       base().with("--init-method-xavier-uniform").with("--embedding-init-method-std", "0.1")});
}

TEST(Options, RotaryBase) {
  const Options rope = base().with("--position-embedding-type", "rope");
  EXPECT_NE(train(rope.with("--rotary-base", 100)).first_loss(), train(rope).first_loss());
  EXPECT_EQ(train(rope.with("--rotary-base", 10000)).first_loss(), train(rope).first_loss());
}

TEST(Options, RotaryPercent) {
  const Options rope = base().with("--position-embedding-type", "rope");
  EXPECT_NE(train(rope.with("--rotary-percent", "0.5")).first_loss(), train(rope).first_loss());
}

// Dropout changes training, the same way in every run, and leaves evaluation alone.
namespace {
void expect_dropout(const std::string& option) {
  const Options with = base().with(option, "0.3");
  const TinyRun dropped = train(with);
  EXPECT_NE(dropped.first_loss(), train(base()).first_loss());
  EXPECT_NE(dropped.first_loss(), train(base().with(option, "0.1")).first_loss());
  EXPECT_EQ(dropped.losses(), train(with.with("--num-workers", 1)).losses());
  const Options only_evaluate = base().with("--skip-train").with("--eval-iters", 1);
  const std::vector<double> plain = train(only_evaluate).series("validation", "lm_loss");
  ASSERT_EQ(plain.size(), 1U);
  EXPECT_EQ(train(only_evaluate.with(option, "0.3")).series("validation", "lm_loss"), plain);
}
}  // namespace

TEST(Options, HiddenDropout) { expect_dropout("--hidden-dropout"); }

TEST(Options, AttentionDropout) { expect_dropout("--attention-dropout"); }

TEST(Options, InitMethodStd) {
  // Without any weight all tokens are equally likely.
  const double uniform = train(base().with("--init-method-std", "0")).first_loss();
  EXPECT_NEAR(uniform, std::log(64.0), 1e-5);
  const double small = train(base().with("--init-method-std", "0.02")).first_loss();
  EXPECT_NEAR(small, std::log(64.0), 0.05);
  EXPECT_NE(small, uniform);
  EXPECT_GT(std::abs(train(base()).first_loss() - std::log(64.0)), 0.1);
}

TEST(Options, Seed) {
  EXPECT_NE(train(base().with("--seed", 1)).first_loss(), train(base()).first_loss());
  EXPECT_EQ(train(base().with("--seed", 1234)).losses(), train(base()).losses());
}

TEST(Options, ResetPositionIds) {
  EXPECT_NE(train(base().with("--reset-position-ids")).first_loss(), train(base()).first_loss());
}

// Rotary positions are places in the sample, as Megatron's, whatever the ids of documents.
TEST(Options, N10_ResetPositionIdsLeavesRotaryPositions) {
  const Options rope = base().with("--position-embedding-type", "rope").with("--fp64");
  EXPECT_EQ(train(rope.with("--reset-position-ids")).losses(), train(rope).losses());
  // Where documents do not see each other, their distances are the same either way.
  const Options apart = rope.with("--reset-attention-mask");
  expect_same_losses(train(apart.with("--reset-position-ids")), train(apart), 1e-12);
}

TEST(Options, N11_RotaryChannelsAreRoundedDown) {
  const Options rope = base()
                           .with("--position-embedding-type", "rope")
                           .with("--num-attention-heads", 2)
                           .with("--kv-channels", 20);
  EXPECT_EQ(train(rope.with("--rotary-percent", "0.33")).losses(),
            train(rope.with("--rotary-percent", "0.3")).losses());  // six of twenty both
}

TEST(Options, F16_RangesAreToldAtOnce) {
  const auto refused = [](const char* option, const char* value) {
    const ProgramResult result =
        call(base().with(option, value).with("--check-options").words("pretrain_gpt"));
    EXPECT_EQ(result.exit_code, 2) << result.describe();
    EXPECT_EQ(count(result.out, option), 1U) << result.describe();
  };
  refused("--seed", "4294967296");
  refused("--distributed-timeout-minutes", "200000000");
  refused("--cpu-threads-per-rank", "1000000");
}

TEST(Options, ResetAttentionMask) {
  const double reset = train(base().with("--reset-attention-mask")).first_loss();
  EXPECT_NE(reset, train(base()).first_loss());
  EXPECT_NE(reset, train(base().with("--reset-position-ids")).first_loss());
}

}  // namespace pentatron::functional
