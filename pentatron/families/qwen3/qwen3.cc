// SPDX-License-Identifier: Apache-2.0
#include "pentatron/families/llama/llama.h"
#include "pentatron/families/registry.h"
#include "pentatron/families/rope_keys.h"
#include "pentatron/families/window_keys.h"

namespace pentatron::families {
namespace {

constexpr Preset kPresets[] = {
    {"qwen3-0.6b", R"({"model_type": "qwen3", "vocab_size": 151936, "hidden_size": 1024,
      "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16,
      "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 40960,
      "rope_theta": 1000000.0, "tie_word_embeddings": true})"},
    {"qwen3-1.7b", R"({"model_type": "qwen3", "vocab_size": 151936, "hidden_size": 2048,
      "intermediate_size": 6144, "num_hidden_layers": 28, "num_attention_heads": 16,
      "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 40960,
      "rope_theta": 1000000.0, "tie_word_embeddings": true})"},
    {"qwen3-4b", R"({"model_type": "qwen3", "vocab_size": 151936, "hidden_size": 2560,
      "intermediate_size": 9728, "num_hidden_layers": 36, "num_attention_heads": 32,
      "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 40960,
      "rope_theta": 1000000.0, "tie_word_embeddings": true})"},
    {"qwen3-8b", R"({"model_type": "qwen3", "vocab_size": 151936, "hidden_size": 4096,
      "intermediate_size": 12288, "num_hidden_layers": 36, "num_attention_heads": 32,
      "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 40960,
      "rope_theta": 1000000.0})"},
    {"qwen3-14b", R"({"model_type": "qwen3", "vocab_size": 151936, "hidden_size": 5120,
      "intermediate_size": 17408, "num_hidden_layers": 40, "num_attention_heads": 40,
      "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 40960,
      "rope_theta": 1000000.0})"},
    {"qwen3-32b", R"({"model_type": "qwen3", "vocab_size": 151936, "hidden_size": 5120,
      "intermediate_size": 25600, "num_hidden_layers": 64, "num_attention_heads": 64,
      "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 40960,
      "rope_theta": 1000000.0})"},
};

// As Llama, with an RMSNorm of each query and key head.
void start(ModelConfig& model) {
  start_llama(model);
  model.qk_layernorm = true;
}

KeyRules keys() {
  KeyRules rules = llama_sizes();
  // The class's own default is not hidden size / heads.
  std::erase_if(rules, [](const KeyRule& rule) { return rule.keys.front() == "head_dim"; });
  return joined(rules, {head_size(/*missing=*/128), fixed_key("attention_bias", false), rope_keys(),
                        windows_by_layer({.switched = true}), tied_embeddings(/*missing=*/false)});
}

}  // namespace

const Family& qwen3() {
  static const Family kFamily{.name = "qwen3",
                              .model_type = "qwen3",
                              .architecture = "Qwen3ForCausalLM",
                              .base_prefix = "model.",
                              .ignored_tensors = llama_ignored_tensors(),
                              .start = start,
                              .keys = keys,
                              .names = llama_names,
                              .presets = kPresets};
  return kFamily;
}

}  // namespace pentatron::families
