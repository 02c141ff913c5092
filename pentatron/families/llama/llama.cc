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

// Of SmolLM's files; the library knows no such key, so it is not written.
KeyRule not_interleaved() {
  KeyRule rule = fixed_key("rope_interleaved", false);
  rule.write = nullptr;
  return rule;
}

KeyRules keys() {
  return joined(llama_sizes(), {rope_keys(), not_interleaved(), attention_and_mlp_biases(),
                                tied_embeddings(/*missing=*/false)});
}

}  // namespace

void start_llama(ModelConfig& model) {
  model.normalization = "RMSNorm";
  model.swiglu = true;
  model.add_bias_linear = false;
}

KeyRules llama_sizes(const LlamaDefaults& missing) {
  return joined(usual_sizes(),
                {key_value_heads(), head_size(missing.head_size),
                 number_key("rms_norm_eps", &ModelConfig::layernorm_epsilon, missing.epsilon),
                 choice_key("hidden_act", {"silu", "swish"}),
                 number_key("initializer_range", &ModelConfig::init_method_std, 0.02),
                 number_key("attention_dropout", &ModelConfig::attention_dropout, 0.0)});
}

std::span<const NameRule> llama_names(const ModelConfig&) { return kNames; }

std::vector<NameRule> llama_names_with(std::initializer_list<NameRule> own) {
  return names_with(kNames, own);
}

Family of_llama_kind(Family family) {
  family.base_prefix = "model.";
  family.ignored_tensors = kIgnored;
  if (family.model_type.empty()) family.model_type = family.name;
  if (family.start == nullptr) family.start = start_llama;
  if (family.names == nullptr) family.names = llama_names;
  return family;
}

const Family& llama() {
  static const Family kFamily =
      of_llama_kind({.name = "llama", .architecture = "LlamaForCausalLM", .keys = keys});
  return kFamily;
}

}  // namespace pentatron::families
