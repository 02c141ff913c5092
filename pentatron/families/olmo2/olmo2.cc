// SPDX-License-Identifier: Apache-2.0
#include "pentatron/families/llama/llama.h"
#include "pentatron/families/registry.h"
#include "pentatron/families/rope_keys.h"

namespace pentatron::families {
namespace {

constexpr NameRule kNames[] = {
    {"embedding.word_embeddings.", "model.embed_tokens."},
    {"decoder.layers.{}.self_attention.linear_qkv.q.", "model.layers.{}.self_attn.q_proj."},
    {"decoder.layers.{}.self_attention.linear_qkv.k.", "model.layers.{}.self_attn.k_proj."},
    {"decoder.layers.{}.self_attention.linear_qkv.v.", "model.layers.{}.self_attn.v_proj."},
    {"decoder.layers.{}.self_attention.q_layernorm.", "model.layers.{}.self_attn.q_norm."},
    {"decoder.layers.{}.self_attention.k_layernorm.", "model.layers.{}.self_attn.k_norm."},
    {"decoder.layers.{}.self_attention.linear_proj.", "model.layers.{}.self_attn.o_proj."},
    {"decoder.layers.{}.post_self_attn_layernorm.", "model.layers.{}.post_attention_layernorm."},
    {"decoder.layers.{}.mlp.linear_fc1.gate.", "model.layers.{}.mlp.gate_proj."},
    {"decoder.layers.{}.mlp.linear_fc1.up.", "model.layers.{}.mlp.up_proj."},
    {"decoder.layers.{}.mlp.linear_fc2.", "model.layers.{}.mlp.down_proj."},
    {"decoder.layers.{}.post_mlp_layernorm.", "model.layers.{}.post_feedforward_layernorm."},
    {"decoder.final_layernorm.", "model.norm."},
    {"output_layer.", "lm_head."},
};

constexpr Preset kPresets[] = {
    {"olmo2-1b", R"({"model_type": "olmo2", "vocab_size": 100352, "hidden_size": 2048,
      "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 16,
      "num_key_value_heads": 16, "max_position_embeddings": 4096, "rms_norm_eps": 1e-6,
      "rope_theta": 500000.0})"},
    {"olmo2-7b", R"({"model_type": "olmo2", "vocab_size": 100352, "hidden_size": 4096,
      "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
      "num_key_value_heads": 32, "max_position_embeddings": 4096, "rms_norm_eps": 1e-6,
      "rope_theta": 500000.0})"},
    {"olmo2-13b", R"({"model_type": "olmo2", "vocab_size": 100352, "hidden_size": 5120,
      "intermediate_size": 13824, "num_hidden_layers": 40, "num_attention_heads": 40,
      "num_key_value_heads": 40, "max_position_embeddings": 4096, "rms_norm_eps": 1e-6,
      "rope_theta": 500000.0})"},
    {"olmo2-32b", R"({"model_type": "olmo2", "vocab_size": 100352, "hidden_size": 5120,
      "intermediate_size": 27648, "num_hidden_layers": 64, "num_attention_heads": 40,
      "num_key_value_heads": 8, "max_position_embeddings": 4096, "rms_norm_eps": 1e-6,
      "rope_theta": 500000.0})"},
};

// RMSNorm of the outputs of attention and mlp, and of all query heads and all key heads together.
void start(ModelConfig& model) {
  start_llama(model);
  model.norm_placement = "post";
  model.qk_layernorm = true;
  model.qk_norm_scope = "all-heads";
}

KeyRules keys() {
  return {size_key("vocab_size", &ModelConfig::vocab_size),
          size_key("hidden_size", &ModelConfig::hidden_size),
          size_key("intermediate_size", &ModelConfig::ffn_hidden_size),
          size_key("num_hidden_layers", &ModelConfig::num_layers),
          size_key("num_attention_heads", &ModelConfig::num_attention_heads),
          key_value_heads(),
          head_size(),
          size_key("max_position_embeddings", &ModelConfig::max_position_embeddings),
          number_key("rms_norm_eps", &ModelConfig::layernorm_epsilon, 1e-5),
          choice_key("hidden_act", {"silu", "swish"}),
          number_key("initializer_range", &ModelConfig::init_method_std, 0.02),
          number_key("attention_dropout", &ModelConfig::attention_dropout, 0.0),
          fixed_key("attention_bias", false),
          rope_keys(),
          tied_embeddings(/*missing=*/false)};
}

std::span<const NameRule> names(const ModelConfig&) { return kNames; }

}  // namespace

const Family& olmo2() {
  static const Family kFamily{.name = "olmo2",
                              .model_type = "olmo2",
                              .architecture = "Olmo2ForCausalLM",
                              .base_prefix = "model.",
                              .ignored_tensors = llama_ignored_tensors(),
                              .start = start,
                              .keys = keys,
                              .names = names,
                              .presets = kPresets,
                              .needs = {"norm_placement", "qk_norm_scope"}};
  return kFamily;
}

}  // namespace pentatron::families
