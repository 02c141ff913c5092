// SPDX-License-Identifier: Apache-2.0
// Every option of a dense model by itself, as words of a command line: the whole model and all of
// its gradients in fp64 against the plain writing, and the option must change the model.
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "pentatron/config/validate.h"
#include "pentatron/models/plain_writing_test_support.h"

namespace pentatron::models {
namespace {

using namespace test_support;  // NOLINT: test vocabulary

struct OptionCase {
  const char* name;
  const char* base;  // what the option needs
  const char* words;
  // An option that asks for what is always done, that only shows in narrow dtypes or that bounds
  // what the model may be given.
  bool same_model = false;
};

void PrintTo(const OptionCase& c, std::ostream* out) { *out << c.name; }

constexpr const char* kRope = "--position-embedding-type rope ";
// Heads of 16 channels, so that Llama 3.1's three ranges of frequencies are all there.
constexpr const char* kRope16 =
    "--position-embedding-type rope --kv-channels 16 --rotary-base 500000 ";
constexpr const char* kRopeScaling =
    "--position-embedding-type rope --kv-channels 16 --rotary-base 500000 --use-rope-scaling ";
constexpr const char* kYarn =
    "--position-embedding-type yarn --rotary-base 100 --rotary-scaling-factor 8 "
    "--yarn-original-max-position-embeddings 64 --yarn-beta-fast 8 ";
constexpr const char* kRelative =
    "--position-embedding-type relative --relative-attention-num-buckets 6 "
    "--relative-attention-max-distance 10 ";
constexpr const char* kLatent =
    "--multi-latent-attention --kv-lora-rank 10 --qk-head-dim 6 --qk-pos-emb-head-dim 8 "
    "--v-head-dim 5 ";
constexpr const char* kLatentQueries =
    "--multi-latent-attention --q-lora-rank 9 --kv-lora-rank 10 --qk-head-dim 6 "
    "--qk-pos-emb-head-dim 8 --v-head-dim 5 ";
constexpr const char* kLatentYarn =
    "--multi-latent-attention --kv-lora-rank 10 --qk-head-dim 6 --qk-pos-emb-head-dim 8 "
    "--v-head-dim 5 --rotary-base 100 --rotary-scaling-factor 8 "
    "--yarn-original-max-position-embeddings 64 --yarn-beta-fast 8 ";
constexpr const char* kQuick = "--quick-geglu ";
constexpr const char* kMup = "--use-mup --mup-base-hidden-size 12 ";

constexpr OptionCase kCases[] = {
    // Sizes.
    {"num_layers", "", "--num-layers 3"},
    {"hidden_size", "--kv-channels 6", "--hidden-size 32"},
    {"ffn_hidden_size", "", "--ffn-hidden-size 56"},
    {"num_attention_heads", "--kv-channels 6", "--num-attention-heads 8"},
    {"kv_channels", "", "--kv-channels 10"},
    {"max_position_embeddings", "", "--max-position-embeddings 20", true},
    {"untied", "", "--untie-embeddings-and-output-weights"},
    // Norms and the stream between layers.
    {"rms_norm", "", "--normalization RMSNorm"},
    {"norm_epsilon", "", "--norm-epsilon 0.05"},
    {"layernorm_1p", "", "--apply-layernorm-1p"},
    {"rms_norm_1p", "--normalization RMSNorm", "--apply-layernorm-1p"},
    {"qk_layernorm", "", "--qk-layernorm"},
    {"qk_norm_all_heads", "--normalization RMSNorm --qk-layernorm", "--qk-norm-scope all-heads"},
    {"qk_l2_norm", "", "--qk-l2-norm"},
    {"norm_placement_post", "", "--norm-placement post"},
    {"norm_placement_both", "", "--norm-placement both"},
    {"residual_post_layernorm", "", "--apply-residual-connection-post-layernorm"},
    {"parallel_attention", "", "--parallel-attention shared-norm"},
    {"parallel_attention_own_norms", "", "--parallel-attention own-norms"},
    {"fp32_residual", "", "--fp32-residual-connection", true},
    {"embedding_multiplier", "", "--embedding-multiplier 3.5"},
    // Positions.
    {"no_positions", "", "--position-embedding-type none"},
    {"rope", "--position-embedding-type none", kRope},
    {"alibi", "--position-embedding-type none", "--position-embedding-type alibi"},
    {"alibi_scale", "--position-embedding-type alibi", "--alibi-scale 0.3"},
    {"alibi_in_bf16", "--position-embedding-type alibi --num-attention-heads 16 --kv-channels 4",
     "--alibi-in-bf16"},
    {"rotary_base", kRope, "--rotary-base 100"},
    {"rotary_percent", kRope, "--rotary-percent 0.7"},  // 4 of 6 channels
    {"rotary_percent_half", kRope16, "--rotary-percent 0.5"},
    {"rotary_interleaved", kRope, "--rotary-interleaved"},
    {"rotary_percent_interleaved", "--position-embedding-type rope --rotary-percent 0.7",
     "--rotary-interleaved"},
    {"interpolation", kRope, "--rotary-seq-len-interpolation-factor 3"},
    {"rope_scaling", kRope16, "--use-rope-scaling"},
    {"rope_scaling_factor", kRopeScaling, "--rope-scaling-factor 2.5"},
    {"rope_scaling_percent", kRopeScaling, "--rotary-percent 0.75"},
    {"no_rope_freq", kRope, "--no-rope-freq 2"},
    {"rotary_base_local", "--position-embedding-type rope --window-size 100,0",
     "--rotary-base-local 50"},
    {"yarn", "--position-embedding-type rope --rotary-base 100", kYarn},
    {"yarn_factor", kYarn, "--rotary-scaling-factor 3"},
    {"yarn_original", kYarn, "--yarn-original-max-position-embeddings 8"},
    {"yarn_beta_fast", kYarn, "--yarn-beta-fast 2"},
    {"yarn_beta_slow", kYarn, "--yarn-beta-slow 0.1"},
    {"yarn_rounding", kYarn, "--no-yarn-correction-range-round-to-int"},
    {"yarn_mscale", kYarn, "--mscale 2"},
    {"yarn_mscale_all_dim", kYarn, "--mscale-all-dim 0.5"},
    {"mrope", kRope, "--position-embedding-type mrope --mrope-section 1 1 1", true},  // of text
    {"relative", "--position-embedding-type none", kRelative},
    {"relative_buckets", kRelative, "--relative-attention-num-buckets 8"},
    {"relative_distance", kRelative, "--relative-attention-max-distance 7"},
    // Activations.
    {"erf_gelu", "", "--no-bias-gelu-fusion"},
    {"openai_gelu", "--no-bias-gelu-fusion", "--openai-gelu"},
    {"squared_relu", "", "--squared-relu"},
    {"swiglu", "", "--swiglu"},
    {"geglu", "", "--geglu"},
    {"quick_geglu", "", "--quick-geglu"},
    {"glu_offset", kQuick, "--glu-linear-offset 1"},
    {"swiglu_offset", "--swiglu", "--glu-linear-offset 0.5"},
    {"glu_clamp", kQuick, "--activation-func-clamp-value 0.4"},
    // Attention.
    {"gqa", "", "--group-query-attention --num-query-groups 2"},
    {"mqa", "", "--group-query-attention --num-query-groups 1"},
    {"mqa_rope", kRope, "--group-query-attention --num-query-groups 1"},
    {"output_gate", "", "--attention-output-gate"},
    {"off_by_one", "", "--softmax-type off-by-one"},
    {"learnable_sink", "", "--softmax-type learnable"},
    {"layer_scaling", "", "--apply-query-key-layer-scaling --fp16", true},
    {"softmax_in_fp32", "", "--attention-softmax-in-fp32", true},
    {"softmax_scale", "", "--softmax-scale 0.9"},
    {"window", "", "--window-size 3,0"},
    {"window_skip", "--window-size 3,0", "--window-attn-skip-freq 2"},
    {"score_capping", "", "--attn-logit-softcapping 0.8"},
    {"logit_capping", "", "--final-logit-softcapping 1.5"},
    // Multi-latent attention.
    {"latent", "", kLatent},
    {"latent_kv_rank", kLatent, "--kv-lora-rank 7"},
    {"latent_qk_head_dim", kLatent, "--qk-head-dim 3"},
    {"latent_rotated_dim", kLatent, "--qk-pos-emb-head-dim 4"},
    {"latent_v_head_dim", kLatent, "--v-head-dim 17"},
    {"latent_queries", kLatent, kLatentQueries},
    {"latent_norms", kLatentQueries, "--qk-layernorm"},
    {"latent_key_norm", kLatent, "--qk-layernorm --normalization RMSNorm"},
    {"latent_norms_1p", "--normalization RMSNorm --qk-layernorm --multi-latent-attention",
     "--apply-layernorm-1p"},
    {"latent_base", kLatent, "--rotary-base 50"},
    {"latent_rope", kLatent, "--rope-type rope", true},  // YaRN by a factor of 1
    {"latent_rope_percent", "--multi-latent-attention --rope-type rope", "--rotary-percent 0.5"},
    {"latent_positions", "--multi-latent-attention --position-embedding-type none",
     "--position-embedding-type rope", true},
    {"latent_no_table", kLatent, "--position-embedding-type none"},
    {"latent_yarn", kLatentYarn, "--rope-type rope"},
    {"latent_yarn_factor", kLatentYarn, "--rotary-scaling-factor 3"},
    {"latent_yarn_original", kLatentYarn, "--yarn-original-max-position-embeddings 8"},
    {"latent_yarn_beta", kLatentYarn, "--yarn-beta-fast 2 --yarn-beta-slow 0.1"},
    {"latent_mscale", kLatentYarn, "--mscale 2"},
    {"latent_mscale_all_dim", kLatentYarn, "--mscale-all-dim 0.7"},
    {"latent_rope_mscale_all_dim",
     "--multi-latent-attention --rope-type rope --rotary-scaling-factor 4", "--mscale-all-dim 0.7"},
    {"latent_scale", kLatent, "--softmax-scale 0.9"},
    {"latent_window", kLatent, "--window-size 3,0"},
    {"latent_sink", kLatent, "--softmax-type learnable"},
    {"latent_no_biases", kLatent, "--disable-bias-linear"},
    // Biases.
    {"no_biases", "", "--disable-bias-linear"},
    {"qkv_bias", "--disable-bias-linear", "--add-qkv-bias"},
    {"attention_output_bias", "--disable-bias-linear", "--add-attention-output-bias"},
    {"attention_biases", "--disable-bias-linear --add-qkv-bias", "--add-attention-output-bias"},
    {"mlp_bias", "--disable-bias-linear", "--add-mlp-bias"},
    {"mlp_bias_gated", "--disable-bias-linear --swiglu", "--add-mlp-bias"},
    {"mlp_bias_erf", "--disable-bias-linear --add-mlp-bias", "--no-bias-gelu-fusion"},
    {"qkv_bias_mqa", "--disable-bias-linear --group-query-attention --num-query-groups 1",
     "--add-qkv-bias"},
    // Maximal update parametrisation.
    {"mup", "", kMup},
    {"mup_embedding", kMup, "--mup-embedding-mult 3.5"},
    {"mup_output", kMup, "--mup-output-mult 0.3"},
    {"mup_head_dim", kMup, "--mup-base-head-dim 3"},
    {"mup_attn_power", kMup, "--mup-attn-scale-power 0.5"},
};

config::ModelConfig model_of(const std::string& words) {
  config::ParseRequest request;
  std::istringstream all(
      "--num-layers 2 --hidden-size 24 --ffn-hidden-size 40 --num-attention-heads 4 "
      "--max-position-embeddings 16 --seq-length 12 --vocab-size 61 --hidden-dropout 0 "
      "--attention-dropout 0 " +
      words);
  for (std::string word; all >> word;) request.words.push_back(word);
  config::RunConfig config = config::load_options(request, config::Purpose::kModel).config;
  config::resolve_vocab(config, 61);
  return config.model;
}

class ModelOption : public testing::TestWithParam<OptionCase> {};

TEST_P(ModelOption, EqualsThePlainWritingInFp64) {
  const OptionCase& c = GetParam();
  const config::ModelConfig base = model_of(c.base);
  const config::ModelConfig config = model_of(std::string(c.base) + " " + c.words);
  expect_plain_writing(config);
  // Weights of one name and shape are the same in both.
  const Batch batch = make_batch({{5, 7}, {12}}, config.vocab_size);
  const auto logits = [&](const config::ModelConfig& of) {
    return PlainGpt(of, random_weights(of)).logits(batch);
  };
  const double off = difference(logits(config), logits(base));
  if (c.same_model) {
    EXPECT_LE(off, 1e-14);
  } else {
    EXPECT_GT(off, 1e-6) << "the option changes nothing";
  }
}

INSTANTIATE_TEST_SUITE_P(Dense, ModelOption, testing::ValuesIn(kCases),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace pentatron::models
