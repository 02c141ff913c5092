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

KeyRules keys() {
  return {
      size_key("vocab_size", &ModelConfig::vocab_size),
      size_key("n_positions", &ModelConfig::max_position_embeddings),
      size_key("n_embd", &ModelConfig::hidden_size), size_key("n_layer", &ModelConfig::num_layers),
      size_key("n_head", &ModelConfig::num_attention_heads), inner_size(),
      gelu_form("activation_function", /*missing=*/"gelu_new"),
      residual_dropout("resid_pdrop", "embd_pdrop", /*missing=*/0.1),
      number_key("attn_pdrop", &ModelConfig::attention_dropout, 0.1),
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
                              .names = names};
  return kFamily;
}

}  // namespace pentatron::families
