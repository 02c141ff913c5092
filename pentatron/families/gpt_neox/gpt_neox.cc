// SPDX-License-Identifier: Apache-2.0
#include "pentatron/families/registry.h"
#include "pentatron/families/rope_keys.h"

namespace pentatron::families {
namespace {

// Masks and angles of old exports
constexpr std::string_view kIgnored[] = {".attention.bias", ".attention.masked_bias",
                                         ".attention.rotary_emb.inv_freq", ".rotary_emb.inv_freq"};

// Query, key and value of each head stand together.
constexpr NameRule kNames[] = {
    {"embedding.word_embeddings.", "gpt_neox.embed_in."},
    {"decoder.layers.{}.input_layernorm.", "gpt_neox.layers.{}.input_layernorm."},
    {"decoder.layers.{}.self_attention.linear_qkv.q.",
     "gpt_neox.layers.{}.attention.query_key_value.", grouped_query},
    {"decoder.layers.{}.self_attention.linear_qkv.k.",
     "gpt_neox.layers.{}.attention.query_key_value.", grouped_key},
    {"decoder.layers.{}.self_attention.linear_qkv.v.",
     "gpt_neox.layers.{}.attention.query_key_value.", grouped_value},
    {"decoder.layers.{}.self_attention.linear_proj.", "gpt_neox.layers.{}.attention.dense."},
    {"decoder.layers.{}.pre_mlp_layernorm.", "gpt_neox.layers.{}.post_attention_layernorm."},
    {"decoder.layers.{}.mlp.linear_fc1.", "gpt_neox.layers.{}.mlp.dense_h_to_4h."},
    {"decoder.layers.{}.mlp.linear_fc2.", "gpt_neox.layers.{}.mlp.dense_4h_to_h."},
    {"decoder.final_layernorm.", "gpt_neox.final_layer_norm."},
    {"output_layer.", "embed_out."},
};

constexpr Preset kPresets[] = {
    {"pythia-70m", R"({"model_type": "gpt_neox", "vocab_size": 50304, "hidden_size": 512,
      "intermediate_size": 2048, "num_hidden_layers": 6, "num_attention_heads": 8,
      "max_position_embeddings": 2048})"},
    {"pythia-160m", R"({"model_type": "gpt_neox", "vocab_size": 50304, "hidden_size": 768,
      "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
      "max_position_embeddings": 2048})"},
    {"pythia-410m", R"({"model_type": "gpt_neox", "vocab_size": 50304, "hidden_size": 1024,
      "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16,
      "max_position_embeddings": 2048})"},
    {"pythia-1b", R"({"model_type": "gpt_neox", "vocab_size": 50304, "hidden_size": 2048,
      "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 8,
      "max_position_embeddings": 2048})"},
    {"pythia-1.4b", R"({"model_type": "gpt_neox", "vocab_size": 50304, "hidden_size": 2048,
      "intermediate_size": 8192, "num_hidden_layers": 24, "num_attention_heads": 16,
      "max_position_embeddings": 2048})"},
    {"pythia-2.8b", R"({"model_type": "gpt_neox", "vocab_size": 50304, "hidden_size": 2560,
      "intermediate_size": 10240, "num_hidden_layers": 32, "num_attention_heads": 32,
      "max_position_embeddings": 2048})"},
    {"pythia-6.9b", R"({"model_type": "gpt_neox", "vocab_size": 50432, "hidden_size": 4096,
      "intermediate_size": 16384, "num_hidden_layers": 32, "num_attention_heads": 32,
      "max_position_embeddings": 2048})"},
    {"pythia-12b", R"({"model_type": "gpt_neox", "vocab_size": 50688, "hidden_size": 5120,
      "intermediate_size": 20480, "num_hidden_layers": 36, "num_attention_heads": 40,
      "max_position_embeddings": 2048})"},
    {"gpt-neox-20b", R"({"model_type": "gpt_neox", "vocab_size": 50432, "hidden_size": 6144,
      "intermediate_size": 24576, "num_hidden_layers": 44, "num_attention_heads": 64,
      "max_position_embeddings": 2048, "hidden_act": "gelu_fast"})"},
};

void start(ModelConfig& model) {
  model.normalization = "LayerNorm";
  model.add_bias_linear = true;
}

KeyRule activation() {
  KeyRule rule{.keys = {"hidden_act"}};
  rule.read = [](const ConfigFile& file, ModelConfig& model) {
    const std::string name = file.find("hidden_act") == nullptr ? "gelu" : file.text("hidden_act");
    const bool tanh = name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast";
    if (!tanh && name != "gelu") {
      file.refuse("hidden_act", "gelu, gelu_new, gelu_pytorch_tanh or gelu_fast");
    }
    model.bias_gelu_fusion = tanh;
  };
  rule.write = [](const ModelConfig& model, Json& json) {
    json["hidden_act"] = model.bias_gelu_fusion ? "gelu_new" : "gelu";
  };
  return rule;
}

// Attention and mlp side by side, each after a norm of its own, or one after the other.
KeyRule residual() {
  KeyRule rule{.keys = {"use_parallel_residual"}};
  rule.read = [](const ConfigFile& file, ModelConfig& model) {
    const bool absent = file.find("use_parallel_residual") == nullptr;
    const bool parallel = absent || file.flag("use_parallel_residual");
    model.parallel_attention = parallel ? "own-norms" : "none";
  };
  rule.write = [](const ModelConfig& model, Json& json) {
    json["use_parallel_residual"] = model.parallel_attention == "own-norms";
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
          number_key("layer_norm_eps", &ModelConfig::layernorm_epsilon, 1e-5),
          number_key("initializer_range", &ModelConfig::init_method_std, 0.02),
          number_key("hidden_dropout", &ModelConfig::hidden_dropout, 0.0),
          number_key("attention_dropout", &ModelConfig::attention_dropout, 0.0),
          activation(),
          residual(),
          fixed_key("attention_bias", true),
          rope_keys({.theta = "rotary_emb_base", .share = "rotary_pct", .missing_share = 0.25}),
          tied_embeddings(/*missing=*/false)};
}

std::span<const NameRule> names(const ModelConfig&) { return kNames; }

}  // namespace

const Family& gpt_neox() {
  static const Family kFamily{.name = "gpt_neox",
                              .model_type = "gpt_neox",
                              .architecture = "GPTNeoXForCausalLM",
                              .base_prefix = "gpt_neox.",
                              .ignored_tensors = kIgnored,
                              .start = start,
                              .keys = keys,
                              .names = names,
                              .presets = kPresets};
  return kFamily;
}

}  // namespace pentatron::families
