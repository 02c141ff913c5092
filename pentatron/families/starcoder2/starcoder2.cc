// SPDX-License-Identifier: Apache-2.0
#include "pentatron/families/llama/llama.h"
#include "pentatron/families/registry.h"
#include "pentatron/families/rope_keys.h"
#include "pentatron/families/window_keys.h"

namespace pentatron::families {
namespace {

// LayerNorm, biases everywhere, GELU in its tanh form.
void start(ModelConfig& model) {
  model.normalization = "LayerNorm";
  model.add_bias_linear = true;
  model.bias_gelu_fusion = true;
}

// GELU is the tanh form, which is the fused kernel's only where there is a bias.
KeyRule biases() {
  KeyRule rule = flag_key("use_bias", &ModelConfig::add_bias_linear, /*missing=*/true);
  rule.read = [flag = rule.read](const ConfigFile& file, ModelConfig& model) {
    flag(file, model);
    model.openai_gelu = !model.add_bias_linear;
  };
  return rule;
}

KeyRules keys() {
  return joined(
      usual_sizes(),
      {key_value_heads(), choice_key("hidden_act", {"gelu_pytorch_tanh", "gelu_new"}),
       number_key("norm_epsilon", &ModelConfig::layernorm_epsilon, 1e-5),
       number_key("initializer_range", &ModelConfig::init_method_std, 0.018042),
       number_key("attention_dropout", &ModelConfig::attention_dropout, 0.0),
       residual_dropout("residual_dropout", "embedding_dropout", /*missing=*/0.0), biases(),
       fixed_key("mlp_type", "default"), fixed_key("norm_type", "layer_norm"),
       fixed_key("scale_attn_weights", true),
       // Of older versions: norm_epsilon; and of precision
       ignored_keys(
           {"layer_norm_epsilon", "attention_softmax_in_fp32", "scale_attention_softmax_in_fp32"}),
       rope_keys(), window_of_all_layers(/*missing=*/0), tied_embeddings(/*missing=*/true)});
}

std::span<const NameRule> names(const ModelConfig&) {
  static const std::vector<NameRule> kNames =
      llama_names_with({{"decoder.layers.{}.mlp.linear_fc1.", "model.layers.{}.mlp.c_fc."},
                        {"decoder.layers.{}.mlp.linear_fc2.", "model.layers.{}.mlp.c_proj."}});
  return kNames;
}

}  // namespace

const Family& starcoder2() {
  static const Family kFamily = of_llama_kind({.name = "starcoder2",
                                               .architecture = "Starcoder2ForCausalLM",
                                               .start = start,
                                               .keys = keys,
                                               .names = names});
  return kFamily;
}

}  // namespace pentatron::families
