// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "pentatron/families/gemma2/gemma.h"
#include "pentatron/families/llama/llama.h"
#include "pentatron/families/registry.h"
#include "pentatron/families/rope_keys.h"
#include "pentatron/families/window_keys.h"

namespace pentatron::families {
namespace {

// Scores are divided by the root of this instead of the head's size.
KeyRule score_scale() {
  KeyRule rule{.keys = {"query_pre_attn_scalar"}};
  rule.read = [](const ConfigFile& file, ModelConfig& model) {
    const bool absent = file.find("query_pre_attn_scalar") == nullptr;
    const std::int64_t scalar = absent ? 256 : file.integer("query_pre_attn_scalar");
    if (scalar != model.kv_channels) {
      model.softmax_scale = 1.0 / std::sqrt(static_cast<double>(scalar));
    }
  };
  rule.write = [](const ModelConfig& model, Json& json) {
    const double scale = model.softmax_scale.value_or(0.0);
    json["query_pre_attn_scalar"] =
        scale > 0.0 ? static_cast<std::int64_t>(std::llround(1.0 / (scale * scale)))
                    : model.kv_channels;
  };
  return rule;
}

// No key: the embedding's output is multiplied by the root of the hidden size.
KeyRule embedding_scale() {
  KeyRule rule;
  rule.read = [](const ConfigFile&, ModelConfig& model) {
    model.embedding_multiplier = std::sqrt(static_cast<double>(model.hidden_size));
  };
  return rule;
}

KeyRules keys() {
  return joined(
      gemma_sizes(),
      {rope_keys(), windows_by_layer({.missing_pattern = 2}),
       optional_key("attn_logit_softcapping", &ModelConfig::attn_logit_softcapping, 50.0),
       optional_key("final_logit_softcapping", &ModelConfig::final_logit_softcapping, 30.0)});
}

}  // namespace

void start_gemma(ModelConfig& model) {
  model.normalization = "RMSNorm";
  model.apply_layernorm_1p = true;
  model.norm_placement = "both";
  model.geglu = true;
  model.add_bias_linear = false;
}

KeyRules gemma_sizes() {
  return joined(usual_sizes(),
                {key_value_heads(), head_size(/*missing=*/256), score_scale(), embedding_scale(),
                 number_key("rms_norm_eps", &ModelConfig::layernorm_epsilon, 1e-6),
                 choice_key("hidden_activation", {"gelu_pytorch_tanh"}),
                 choice_key("hidden_act", {"gelu_pytorch_tanh"}),
                 number_key("initializer_range", &ModelConfig::init_method_std, 0.02),
                 number_key("attention_dropout", &ModelConfig::attention_dropout, 0.0),
                 attention_biases(), fixed_key("use_bidirectional_attention", false),
                 ignored_keys({"cache_implementation"}), tied_embeddings(/*missing=*/true)});
}

std::span<const NameRule> gemma_names(const ModelConfig&) {
  static const std::vector<NameRule> kNames = llama_names_with(
      {{"decoder.layers.{}.post_self_attn_layernorm.", "model.layers.{}.post_attention_layernorm."},
       {"decoder.layers.{}.pre_mlp_layernorm.", "model.layers.{}.pre_feedforward_layernorm."},
       {"decoder.layers.{}.post_mlp_layernorm.", "model.layers.{}.post_feedforward_layernorm."}});
  return kNames;
}

const Family& gemma2() {
  static const Family kFamily =
      of_llama_kind({.name = "gemma2",
                     .architecture = "Gemma2ForCausalLM",
                     .start = start_gemma,
                     .keys = keys,
                     .names = gemma_names,
                     .needs = {"norm_placement", "geglu", "embedding_multiplier"}});
  return kFamily;
}

}  // namespace pentatron::families
