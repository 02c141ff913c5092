// SPDX-License-Identifier: Apache-2.0
#include "pentatron/families/llama/llama.h"
#include "pentatron/families/registry.h"
#include "pentatron/families/rope_keys.h"
#include "pentatron/families/window_keys.h"

namespace pentatron::families {
namespace {

// Query, key and value in one tensor, gate and up in another.
constexpr NameRule kNames[] = {
    {"embedding.word_embeddings.", "model.embed_tokens."},
    {"decoder.layers.{}.input_layernorm.", "model.layers.{}.input_layernorm."},
    {"decoder.layers.{}.self_attention.linear_qkv.q.", "model.layers.{}.self_attn.qkv_proj.",
     stacked_query},
    {"decoder.layers.{}.self_attention.linear_qkv.k.", "model.layers.{}.self_attn.qkv_proj.",
     stacked_key},
    {"decoder.layers.{}.self_attention.linear_qkv.v.", "model.layers.{}.self_attn.qkv_proj.",
     stacked_value},
    {"decoder.layers.{}.self_attention.linear_proj.", "model.layers.{}.self_attn.o_proj."},
    {"decoder.layers.{}.pre_mlp_layernorm.", "model.layers.{}.post_attention_layernorm."},
    {"decoder.layers.{}.mlp.linear_fc1.gate.", "model.layers.{}.mlp.gate_up_proj.", stacked_gate},
    {"decoder.layers.{}.mlp.linear_fc1.up.", "model.layers.{}.mlp.gate_up_proj.", stacked_up},
    {"decoder.layers.{}.mlp.linear_fc2.", "model.layers.{}.mlp.down_proj."},
    {"decoder.final_layernorm.", "model.norm."},
    {"output_layer.", "lm_head."},
};

constexpr Preset kPresets[] = {
    {"phi3-mini-4k", R"({"model_type": "phi3", "vocab_size": 32064, "hidden_size": 3072,
      "intermediate_size": 8192, "num_hidden_layers": 32, "num_attention_heads": 32,
      "num_key_value_heads": 32, "max_position_embeddings": 4096, "sliding_window": 2047})"},
    {"phi3-medium-4k", R"({"model_type": "phi3", "vocab_size": 32064, "hidden_size": 5120,
      "intermediate_size": 17920, "num_hidden_layers": 40, "num_attention_heads": 40,
      "num_key_value_heads": 10, "max_position_embeddings": 4096, "sliding_window": 2047})"},
    {"phi4-14b", R"({"model_type": "phi3", "vocab_size": 100352, "hidden_size": 5120,
      "intermediate_size": 17920, "num_hidden_layers": 40, "num_attention_heads": 40,
      "num_key_value_heads": 10, "max_position_embeddings": 16384, "rope_theta": 250000.0,
      "sliding_window": null})"},
};

KeyRule residual_dropout() {
  KeyRule rule{.keys = {"resid_pdrop", "embd_pdrop"}};
  rule.read = [](const ConfigFile& file, ModelConfig& model) {
    const auto rate = [&](const char* key) {
      return file.find(key) == nullptr ? 0.0 : file.number(key);
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

// The library takes "yarn" for another scaling, that of its own long models.
KeyRule plain_rope() {
  KeyRule rule = rope_keys({.share = "partial_rotary_factor"});
  rule.read = [read = rule.read](const ConfigFile& file, ModelConfig& model) {
    read(file, model);
    if (model.position_embedding_type != "rope") file.refuse("rope_scaling", "null");
  };
  return rule;
}

KeyRules keys() {
  return joined(llama_sizes(),
                {plain_rope(), residual_dropout(), fixed_key("attention_bias", false),
                 // Of the scalings that are refused
                 ignored_keys({"original_max_position_embeddings"}),
                 window_of_all_layers(/*missing=*/0), tied_embeddings(/*missing=*/false)});
}

std::span<const NameRule> names(const ModelConfig&) { return kNames; }

}  // namespace

const Family& phi3() {
  static const Family kFamily{.name = "phi3",
                              .model_type = "phi3",
                              .architecture = "Phi3ForCausalLM",
                              .base_prefix = "model.",
                              .ignored_tensors = llama_ignored_tensors(),
                              .start = start_llama,
                              .keys = keys,
                              .names = names,
                              .presets = kPresets};
  return kFamily;
}

}  // namespace pentatron::families
