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

void start(ModelConfig& model) {
  model.normalization = "LayerNorm";
  model.add_bias_linear = true;
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

// attention_bias; the feed-forward always has its own.
KeyRule biases() {
  KeyRule rule = flag_key("attention_bias", &ModelConfig::add_bias_linear, /*missing=*/true);
  rule.read = [flag = rule.read](const ConfigFile& file, ModelConfig& model) {
    flag(file, model);
    model.add_mlp_bias = !model.add_bias_linear;
  };
  return rule;
}

KeyRules keys() {
  return joined(
      usual_sizes(),
      {number_key("layer_norm_eps", &ModelConfig::layernorm_epsilon, 1e-5),
       number_key("initializer_range", &ModelConfig::init_method_std, 0.02),
       number_key("hidden_dropout", &ModelConfig::hidden_dropout, 0.0),
       number_key("attention_dropout", &ModelConfig::attention_dropout, 0.0),
       gelu_form("hidden_act", /*missing=*/"gelu"), residual(), biases(),
       rope_keys({.theta = "rotary_emb_base", .share = "rotary_pct", .missing_share = 0.25}),
       tied_embeddings(/*missing=*/false)});
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
                              .names = names};
  return kFamily;
}

}  // namespace pentatron::families
