// SPDX-License-Identifier: Apache-2.0
#include "pentatron/families/registry.h"

namespace pentatron::families {
namespace {

// Masks of old exports
constexpr std::string_view kIgnored[] = {".attn.bias", ".attn.masked_bias"};

// Conv1D: weights are stored as [inputs, outputs].
constexpr NameRule kNames[] = {
    {"embedding.word_embeddings.", "transformer.wte."},
    {"embedding.position_embeddings.", "transformer.wpe."},
    {"decoder.layers.{}.input_layernorm.", "transformer.h.{}.ln_1."},
    {"decoder.layers.{}.self_attention.linear_qkv.q.", "transformer.h.{}.attn.c_attn.",
     stacked_query, true},
    {"decoder.layers.{}.self_attention.linear_qkv.k.", "transformer.h.{}.attn.c_attn.", stacked_key,
     true},
    {"decoder.layers.{}.self_attention.linear_qkv.v.", "transformer.h.{}.attn.c_attn.",
     stacked_value, true},
    {"decoder.layers.{}.self_attention.linear_proj.", "transformer.h.{}.attn.c_proj.", nullptr,
     true},
    {"decoder.layers.{}.pre_mlp_layernorm.", "transformer.h.{}.ln_2."},
    {"decoder.layers.{}.mlp.linear_fc1.", "transformer.h.{}.mlp.c_fc.", nullptr, true},
    {"decoder.layers.{}.mlp.linear_fc2.", "transformer.h.{}.mlp.c_proj.", nullptr, true},
    {"decoder.final_layernorm.", "transformer.ln_f."},
    {"output_layer.", "lm_head."},
};

constexpr Preset kPresets[] = {
    {"gpt2-124m", R"({"model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024,
      "n_embd": 768, "n_layer": 12, "n_head": 12})"},
    {"gpt2-355m", R"({"model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024,
      "n_embd": 1024, "n_layer": 24, "n_head": 16})"},
    {"gpt2-774m", R"({"model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024,
      "n_embd": 1280, "n_layer": 36, "n_head": 20})"},
    {"gpt2-1.5b", R"({"model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024,
      "n_embd": 1600, "n_layer": 48, "n_head": 25})"},
    // T. Brown et al., 2020, table 2.1: dense attention in all layers here
    {"gpt3-125m", R"({"model_type": "gpt2", "vocab_size": 50257, "n_positions": 2048,
      "n_embd": 768, "n_layer": 12, "n_head": 12})"},
    {"gpt3-350m", R"({"model_type": "gpt2", "vocab_size": 50257, "n_positions": 2048,
      "n_embd": 1024, "n_layer": 24, "n_head": 16})"},
    {"gpt3-760m", R"({"model_type": "gpt2", "vocab_size": 50257, "n_positions": 2048,
      "n_embd": 1536, "n_layer": 24, "n_head": 16})"},
    {"gpt3-1.3b", R"({"model_type": "gpt2", "vocab_size": 50257, "n_positions": 2048,
      "n_embd": 2048, "n_layer": 24, "n_head": 16})"},
    {"gpt3-2.7b", R"({"model_type": "gpt2", "vocab_size": 50257, "n_positions": 2048,
      "n_embd": 2560, "n_layer": 32, "n_head": 32})"},
    {"gpt3-6.7b", R"({"model_type": "gpt2", "vocab_size": 50257, "n_positions": 2048,
      "n_embd": 4096, "n_layer": 32, "n_head": 32})"},
    {"gpt3-13b", R"({"model_type": "gpt2", "vocab_size": 50257, "n_positions": 2048,
      "n_embd": 5120, "n_layer": 40, "n_head": 40})"},
    {"gpt3-175b", R"({"model_type": "gpt2", "vocab_size": 50257, "n_positions": 2048,
      "n_embd": 12288, "n_layer": 96, "n_head": 96})"},
};

void start(ModelConfig& model) {
  model.normalization = "LayerNorm";
  model.position_embedding_type = "learned_absolute";
  model.add_bias_linear = true;
}

// Null: four times the hidden size.
KeyRule inner_size() {
  KeyRule rule{.keys = {"n_inner"}};
  rule.read = [](const ConfigFile& file, ModelConfig& model) {
    const bool null = file.find("n_inner") == nullptr;
    model.ffn_hidden_size = null ? 4 * model.hidden_size : file.integer("n_inner");
  };
  rule.write = [](const ModelConfig& model, Json& json) {
    const bool usual = model.ffn_hidden_size == 4 * model.hidden_size;
    json["n_inner"] = usual ? Json(nullptr) : Json(model.ffn_hidden_size);
  };
  return rule;
}

// One rate here for the embedding's dropout and that of the residual stream.
KeyRule residual_dropout() {
  KeyRule rule{.keys = {"resid_pdrop", "embd_pdrop"}};
  rule.read = [](const ConfigFile& file, ModelConfig& model) {
    const auto rate = [&](const char* key) {
      return file.find(key) == nullptr ? 0.1 : file.number(key);
    };
    model.hidden_dropout = rate("resid_pdrop");
    if (rate("embd_pdrop") != model.hidden_dropout) {
      file.refuse("embd_pdrop", "the value of 'resid_pdrop': there is one rate for both");
    }
  };
  rule.write = [](const ModelConfig& model, Json& json) {
    json["resid_pdrop"] = model.hidden_dropout;
    json["embd_pdrop"] = model.hidden_dropout;
  };
  return rule;
}

// GELU in its tanh form, the fused kernel's, or in the erf form.
KeyRule activation() {
  KeyRule rule{.keys = {"activation_function"}};
  rule.read = [](const ConfigFile& file, ModelConfig& model) {
    const bool absent = file.find("activation_function") == nullptr;
    const std::string name = absent ? "gelu_new" : file.text("activation_function");
    const bool tanh = name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast";
    if (!tanh && name != "gelu") {
      file.refuse("activation_function", "gelu_new, gelu_pytorch_tanh, gelu_fast or gelu");
    }
    model.bias_gelu_fusion = tanh;
  };
  rule.write = [](const ModelConfig& model, Json& json) {
    json["activation_function"] = model.bias_gelu_fusion ? "gelu_new" : "gelu";
  };
  return rule;
}

KeyRules keys() {
  return {
      size_key("vocab_size", &ModelConfig::vocab_size),
      size_key("n_positions", &ModelConfig::max_position_embeddings),
      size_key("n_embd", &ModelConfig::hidden_size), size_key("n_layer", &ModelConfig::num_layers),
      size_key("n_head", &ModelConfig::num_attention_heads), inner_size(), activation(),
      residual_dropout(), number_key("attn_pdrop", &ModelConfig::attention_dropout, 0.1),
      number_key("layer_norm_epsilon", &ModelConfig::layernorm_epsilon, 1e-5),
      number_key("initializer_range", &ModelConfig::init_method_std, 0.02),
      fixed_key("scale_attn_weights", true), fixed_key("scale_attn_by_inverse_layer_idx", false),
      fixed_key("reorder_and_upcast_attn", false),
      // Of older versions: n_positions
      ignored_keys({"n_ctx"}), tied_embeddings(/*missing=*/true)};
}

std::span<const NameRule> names(const ModelConfig&) { return kNames; }

}  // namespace

const Family& gpt2() {
  static const Family kFamily{.name = "gpt2",
                              .model_type = "gpt2",
                              .architecture = "GPT2LMHeadModel",
                              .base_prefix = "transformer.",
                              .ignored_tensors = kIgnored,
                              .start = start,
                              .keys = keys,
                              .names = names,
                              .presets = kPresets};
  return kFamily;
}

}  // namespace pentatron::families
