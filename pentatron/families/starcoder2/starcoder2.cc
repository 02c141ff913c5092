// SPDX-License-Identifier: Apache-2.0
#include "pentatron/families/llama/llama.h"
#include "pentatron/families/registry.h"
#include "pentatron/families/rope_keys.h"
#include "pentatron/families/window_keys.h"

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
    {"decoder.layers.{}.mlp.linear_fc1.", "model.layers.{}.mlp.c_fc."},
    {"decoder.layers.{}.mlp.linear_fc2.", "model.layers.{}.mlp.c_proj."},
    {"decoder.final_layernorm.", "model.norm."},
    {"output_layer.", "lm_head."},
};

constexpr Preset kPresets[] = {
    {"starcoder2-7b", R"({"model_type": "starcoder2", "vocab_size": 49152, "hidden_size": 4608,
      "intermediate_size": 18432, "num_hidden_layers": 32, "num_attention_heads": 36,
      "num_key_value_heads": 4, "max_position_embeddings": 16384, "rope_theta": 1000000.0,
      "sliding_window": 4096, "attention_dropout": 0.1, "residual_dropout": 0.1,
      "embedding_dropout": 0.1})"},
    {"starcoder2-15b", R"({"model_type": "starcoder2", "vocab_size": 49152, "hidden_size": 6144,
      "intermediate_size": 24576, "num_hidden_layers": 40, "num_attention_heads": 48,
      "num_key_value_heads": 4, "max_position_embeddings": 16384, "rope_theta": 100000.0,
      "sliding_window": 4096, "attention_dropout": 0.1, "residual_dropout": 0.1,
      "embedding_dropout": 0.1, "tie_word_embeddings": false})"},
};

// LayerNorm, biases everywhere, GELU in its tanh form.
void start(ModelConfig& model) {
  model.normalization = "LayerNorm";
  model.add_bias_linear = true;
  model.bias_gelu_fusion = true;
}

KeyRule residual_dropout() {
  KeyRule rule{.keys = {"residual_dropout", "embedding_dropout"}};
  rule.read = [](const ConfigFile& file, ModelConfig& model) {
    const auto rate = [&](const char* key) {
      return file.find(key) == nullptr ? 0.0 : file.number(key);
    };
    model.hidden_dropout = rate("residual_dropout");
    if (rate("embedding_dropout") != model.hidden_dropout) {
      file.refuse("embedding_dropout", "the value of 'residual_dropout': there is one rate");
    }
  };
  rule.write = [](const ModelConfig& model, Json& json) {
    json["residual_dropout"] = model.hidden_dropout;
    json["embedding_dropout"] = model.hidden_dropout;
  };
  return rule;
}

KeyRules keys() {
  return {size_key("vocab_size", &ModelConfig::vocab_size),
          size_key("hidden_size", &ModelConfig::hidden_size),
          size_key("intermediate_size", &ModelConfig::ffn_hidden_size),
          size_key("num_hidden_layers", &ModelConfig::num_layers),
          size_key("num_attention_heads", &ModelConfig::num_attention_heads),
          size_key("max_position_embeddings", &ModelConfig::max_position_embeddings),
          key_value_heads(), choice_key("hidden_act", {"gelu_pytorch_tanh", "gelu_new"}),
          number_key("norm_epsilon", &ModelConfig::layernorm_epsilon, 1e-5),
          number_key("initializer_range", &ModelConfig::init_method_std, 0.018042),
          number_key("attention_dropout", &ModelConfig::attention_dropout, 0.0), residual_dropout(),
          fixed_key("use_bias", true), fixed_key("mlp_type", "default"),
          fixed_key("norm_type", "layer_norm"), fixed_key("scale_attn_weights", true),
          // Of older versions: norm_epsilon; and of precision
          ignored_keys({"layer_norm_epsilon", "attention_softmax_in_fp32",
                        "scale_attention_softmax_in_fp32"}),
          rope_keys(), window_of_all_layers(/*missing=*/0), tied_embeddings(/*missing=*/true)};
}

std::span<const NameRule> names(const ModelConfig&) { return kNames; }

}  // namespace

const Family& starcoder2() {
  static const Family kFamily{.name = "starcoder2",
                              .model_type = "starcoder2",
                              .architecture = "Starcoder2ForCausalLM",
                              .base_prefix = "model.",
                              .ignored_tensors = llama_ignored_tensors(),
                              .start = start,
                              .keys = keys,
                              .names = names,
                              .presets = kPresets};
  return kFamily;
}

}  // namespace pentatron::families
