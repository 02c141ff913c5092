// SPDX-License-Identifier: Apache-2.0
#include "pentatron/families/llama/llama.h"
#include "pentatron/families/registry.h"
#include "pentatron/families/rope_keys.h"

namespace pentatron::families {
namespace {

// LayerNorm with weights used as 1 + weight, squared ReLU, half of each head's channels rotated.
void start(ModelConfig& model) {
  model.normalization = "LayerNorm";
  model.apply_layernorm_1p = true;
  model.squared_relu = true;
  model.add_bias_linear = false;
}

KeyRules keys() {
  return joined(usual_sizes(),
                {key_value_heads(), head_size(), choice_key("hidden_act", {"relu2"}),
                 number_key("norm_eps", &ModelConfig::layernorm_epsilon, 1e-5),
                 number_key("initializer_range", &ModelConfig::init_method_std, 0.0134),
                 number_key("attention_dropout", &ModelConfig::attention_dropout, 0.0),
                 attention_and_mlp_biases(),
                 rope_keys({.share = "partial_rotary_factor", .missing_share = 0.5}),
                 tied_embeddings(/*missing=*/false)});
}

std::span<const NameRule> names(const ModelConfig&) {
  static const std::vector<NameRule> kNames =
      llama_names_with({{"decoder.layers.{}.mlp.linear_fc1.", "model.layers.{}.mlp.up_proj."}});
  return kNames;
}

}  // namespace

const Family& nemotron() {
  static const Family kFamily = of_llama_kind({.name = "nemotron",
                                               .architecture = "NemotronForCausalLM",
                                               .start = start,
                                               .keys = keys,
                                               .names = names});
  return kFamily;
}

}  // namespace pentatron::families
