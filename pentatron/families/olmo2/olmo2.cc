// SPDX-License-Identifier: Apache-2.0
#include "pentatron/families/llama/llama.h"
#include "pentatron/families/registry.h"
#include "pentatron/families/rope_keys.h"

namespace pentatron::families {
namespace {

// RMSNorm of the outputs of attention and mlp, and of all query heads and all key heads together.
void start(ModelConfig& model) {
  start_llama(model);
  model.norm_placement = "post";
  model.qk_layernorm = true;
  model.qk_norm_scope = "all-heads";
}

KeyRules keys() {
  return joined(llama_sizes({.epsilon = 1e-5}),
                {attention_biases(), rope_keys(), tied_embeddings(/*missing=*/false)});
}

std::span<const NameRule> names(const ModelConfig&) {
  static const std::vector<NameRule> kNames = llama_names_with(
      {{"decoder.layers.{}.post_self_attn_layernorm.", "model.layers.{}.post_attention_layernorm."},
       {"decoder.layers.{}.post_mlp_layernorm.", "model.layers.{}.post_feedforward_layernorm."}});
  return kNames;
}

}  // namespace

const Family& olmo2() {
  static const Family kFamily = of_llama_kind({.name = "olmo2",
                                               .architecture = "Olmo2ForCausalLM",
                                               .start = start,
                                               .keys = keys,
                                               .names = names,
                                               .needs = {"norm_placement", "qk_norm_scope"}});
  return kFamily;
}

}  // namespace pentatron::families
