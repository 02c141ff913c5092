// SPDX-License-Identifier: Apache-2.0
#include "pentatron/families/llama/llama.h"
#include "pentatron/families/registry.h"
#include "pentatron/families/rope_keys.h"

namespace pentatron::families {
namespace {

constexpr NameRule kNames[] = {
    {"embedding.word_embeddings.", "model.embed_tokens."},
    {"decoder.layers.{}.input_layernorm.", "model.layers.{}.input_layernorm."},
    {"decoder.layers.{}.self_attention.linear_qkv.q.", "model.layers.{}.self_attn.q_proj."},
    {"decoder.layers.{}.self_attention.linear_qkv.k.", "model.layers.{}.self_attn.k_proj."},
    {"decoder.layers.{}.self_attention.linear_qkv.v.", "model.layers.{}.self_attn.v_proj."},
    {"decoder.layers.{}.self_attention.linear_proj.", "model.layers.{}.self_attn.o_proj."},
    {"decoder.layers.{}.pre_mlp_layernorm.", "model.layers.{}.post_attention_layernorm."},
    {"decoder.layers.{}.mlp.linear_fc1.", "model.layers.{}.mlp.up_proj."},
    {"decoder.layers.{}.mlp.linear_fc2.", "model.layers.{}.mlp.down_proj."},
    {"decoder.final_layernorm.", "model.norm."},
    {"output_layer.", "lm_head."},
};

constexpr Preset kPresets[] = {
    {"minitron-4b", R"({"model_type": "nemotron", "vocab_size": 256000, "hidden_size": 3072,
      "intermediate_size": 9216, "num_hidden_layers": 32, "num_attention_heads": 24,
      "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 4096,
      "partial_rotary_factor": 0.5})"},
    {"nemotron4-15b", R"({"model_type": "nemotron", "vocab_size": 256000, "hidden_size": 6144,
      "intermediate_size": 24576, "num_hidden_layers": 32, "num_attention_heads": 48,
      "num_key_value_heads": 8, "max_position_embeddings": 4096,
      "partial_rotary_factor": 0.5})"},
    {"nemotron4-340b", R"({"model_type": "nemotron", "vocab_size": 256000, "hidden_size": 18432,
      "intermediate_size": 73728, "num_hidden_layers": 96, "num_attention_heads": 96,
      "num_key_value_heads": 8, "max_position_embeddings": 4096,
      "partial_rotary_factor": 0.5})"},
};

// LayerNorm with weights used as 1 + weight, squared ReLU, half of each head's channels rotated.
void start(ModelConfig& model) {
  model.normalization = "LayerNorm";
  model.apply_layernorm_1p = true;
  model.squared_relu = true;
  model.add_bias_linear = false;
}

KeyRules keys() {
  return {size_key("vocab_size", &ModelConfig::vocab_size),
          size_key("hidden_size", &ModelConfig::hidden_size),
          size_key("intermediate_size", &ModelConfig::ffn_hidden_size),
          size_key("num_hidden_layers", &ModelConfig::num_layers),
          size_key("num_attention_heads", &ModelConfig::num_attention_heads),
          size_key("max_position_embeddings", &ModelConfig::max_position_embeddings),
          key_value_heads(),
          head_size(),
          choice_key("hidden_act", {"relu2"}),
          number_key("norm_eps", &ModelConfig::layernorm_epsilon, 1e-5),
          number_key("initializer_range", &ModelConfig::init_method_std, 0.0134),
          number_key("attention_dropout", &ModelConfig::attention_dropout, 0.0),
          fixed_key("attention_bias", false),
          fixed_key("mlp_bias", false),
          rope_keys({.share = "partial_rotary_factor", .missing_share = 0.5}),
          tied_embeddings(/*missing=*/false)};
}

std::span<const NameRule> names(const ModelConfig&) { return kNames; }

}  // namespace

const Family& nemotron() {
  static const Family kFamily{.name = "nemotron",
                              .model_type = "nemotron",
                              .architecture = "NemotronForCausalLM",
                              .base_prefix = "model.",
                              .ignored_tensors = llama_ignored_tensors(),
                              .start = start,
                              .keys = keys,
                              .names = names,
                              .presets = kPresets};
  return kFamily;
}

}  // namespace pentatron::families
