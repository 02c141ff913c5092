// SPDX-License-Identifier: Apache-2.0
#include "pentatron/families/llama/llama.h"

#include "pentatron/families/registry.h"
#include "pentatron/families/rope_keys.h"

namespace pentatron::families {
namespace {

constexpr std::string_view kIgnored[] = {".rotary_emb.inv_freq"};

constexpr NameRule kNames[] = {
    {"embedding.word_embeddings.", "model.embed_tokens."},
    {"decoder.layers.{}.input_layernorm.", "model.layers.{}.input_layernorm."},
    {"decoder.layers.{}.self_attention.linear_qkv.q.", "model.layers.{}.self_attn.q_proj."},
    {"decoder.layers.{}.self_attention.linear_qkv.k.", "model.layers.{}.self_attn.k_proj."},
    {"decoder.layers.{}.self_attention.linear_qkv.v.", "model.layers.{}.self_attn.v_proj."},
    {"decoder.layers.{}.self_attention.q_layernorm.", "model.layers.{}.self_attn.q_norm."},
    {"decoder.layers.{}.self_attention.k_layernorm.", "model.layers.{}.self_attn.k_norm."},
    {"decoder.layers.{}.self_attention.linear_proj.", "model.layers.{}.self_attn.o_proj."},
    {"decoder.layers.{}.pre_mlp_layernorm.", "model.layers.{}.post_attention_layernorm."},
    {"decoder.layers.{}.mlp.linear_fc1.gate.", "model.layers.{}.mlp.gate_proj."},
    {"decoder.layers.{}.mlp.linear_fc1.up.", "model.layers.{}.mlp.up_proj."},
    {"decoder.layers.{}.mlp.linear_fc2.", "model.layers.{}.mlp.down_proj."},
    {"decoder.final_layernorm.", "model.norm."},
    {"output_layer.", "lm_head."},
};

constexpr Preset kPresets[] = {
    {"llama2-7b", R"({"model_type": "llama", "vocab_size": 32000, "hidden_size": 4096,
      "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
      "num_key_value_heads": 32, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5})"},
    {"llama2-13b", R"({"model_type": "llama", "vocab_size": 32000, "hidden_size": 5120,
      "intermediate_size": 13824, "num_hidden_layers": 40, "num_attention_heads": 40,
      "num_key_value_heads": 40, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5})"},
    {"llama2-70b", R"({"model_type": "llama", "vocab_size": 32000, "hidden_size": 8192,
      "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64,
      "num_key_value_heads": 8, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5})"},
    {"llama3-8b", R"({"model_type": "llama", "vocab_size": 128256, "hidden_size": 4096,
      "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
      "num_key_value_heads": 8, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
      "rope_theta": 500000.0})"},
    {"llama3-70b", R"({"model_type": "llama", "vocab_size": 128256, "hidden_size": 8192,
      "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64,
      "num_key_value_heads": 8, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
      "rope_theta": 500000.0})"},
    {"llama3.1-8b", R"({"model_type": "llama", "vocab_size": 128256, "hidden_size": 4096,
      "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
      "num_key_value_heads": 8, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
      "rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", "factor": 8.0,
      "low_freq_factor": 1.0, "high_freq_factor": 4.0,
      "original_max_position_embeddings": 8192}})"},
    {"llama3.1-70b", R"({"model_type": "llama", "vocab_size": 128256, "hidden_size": 8192,
      "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64,
      "num_key_value_heads": 8, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
      "rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", "factor": 8.0,
      "low_freq_factor": 1.0, "high_freq_factor": 4.0,
      "original_max_position_embeddings": 8192}})"},
    {"llama3.1-405b", R"({"model_type": "llama", "vocab_size": 128256, "hidden_size": 16384,
      "intermediate_size": 53248, "num_hidden_layers": 126, "num_attention_heads": 128,
      "num_key_value_heads": 8, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
      "rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", "factor": 8.0,
      "low_freq_factor": 1.0, "high_freq_factor": 4.0,
      "original_max_position_embeddings": 8192}})"},
    {"llama3.2-1b", R"({"model_type": "llama", "vocab_size": 128256, "hidden_size": 2048,
      "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32,
      "num_key_value_heads": 8, "head_dim": 64, "max_position_embeddings": 131072,
      "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3",
      "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
      "original_max_position_embeddings": 8192}, "tie_word_embeddings": true})"},
    {"llama3.2-3b", R"({"model_type": "llama", "vocab_size": 128256, "hidden_size": 3072,
      "intermediate_size": 8192, "num_hidden_layers": 28, "num_attention_heads": 24,
      "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 131072,
      "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3",
      "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
      "original_max_position_embeddings": 8192}, "tie_word_embeddings": true})"},
};

// attention_bias is one of all four projections, mlp_bias of all three: here either all linear
// layers have one or none.
KeyRule biases() {
  KeyRule rule{.keys = {"attention_bias", "mlp_bias"}};
  rule.read = [](const ConfigFile& file, ModelConfig& model) {
    const bool attention = file.find("attention_bias") != nullptr && file.flag("attention_bias");
    const bool mlp = file.find("mlp_bias") != nullptr && file.flag("mlp_bias");
    if (attention != mlp) {
      file.refuse("mlp_bias",
                  "the value of 'attention_bias': biases of one of the two alone are "
                  "not supported");
    }
    model.add_bias_linear = attention;
  };
  rule.write = [](const ModelConfig& model, Json& json) {
    json["attention_bias"] = model.add_bias_linear;
    json["mlp_bias"] = model.add_bias_linear;
  };
  return rule;
}

// Of SmolLM's files; the library knows no such key, so it is not written.
KeyRule not_interleaved() {
  KeyRule rule = fixed_key("rope_interleaved", false);
  rule.write = nullptr;
  return rule;
}

KeyRules keys() {
  return joined(llama_sizes(),
                {rope_keys(), not_interleaved(), biases(), tied_embeddings(/*missing=*/false)});
}

}  // namespace

void start_llama(ModelConfig& model) {
  model.normalization = "RMSNorm";
  model.swiglu = true;
  model.add_bias_linear = false;
}

KeyRules llama_sizes() {
  return {size_key("vocab_size", &ModelConfig::vocab_size),
          size_key("hidden_size", &ModelConfig::hidden_size),
          size_key("intermediate_size", &ModelConfig::ffn_hidden_size),
          size_key("num_hidden_layers", &ModelConfig::num_layers),
          size_key("num_attention_heads", &ModelConfig::num_attention_heads),
          key_value_heads(),
          head_size(),
          size_key("max_position_embeddings", &ModelConfig::max_position_embeddings),
          number_key("rms_norm_eps", &ModelConfig::layernorm_epsilon, 1e-6),
          choice_key("hidden_act", {"silu", "swish"}),
          number_key("initializer_range", &ModelConfig::init_method_std, 0.02),
          number_key("attention_dropout", &ModelConfig::attention_dropout, 0.0)};
}

std::span<const NameRule> llama_names(const ModelConfig&) { return kNames; }
std::span<const std::string_view> llama_ignored_tensors() { return kIgnored; }

const Family& llama() {
  static const Family kFamily{.name = "llama",
                              .model_type = "llama",
                              .architecture = "LlamaForCausalLM",
                              .base_prefix = "model.",
                              .ignored_tensors = kIgnored,
                              .start = start_llama,
                              .keys = keys,
                              .names = llama_names,
                              .presets = kPresets};
  return kFamily;
}

}  // namespace pentatron::families
