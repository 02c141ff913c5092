// SPDX-License-Identifier: Apache-2.0
#include "pentatron/families/llama/llama.h"
#include "pentatron/families/registry.h"
#include "pentatron/families/rope_keys.h"
#include "pentatron/families/window_keys.h"

namespace pentatron::families {
namespace {

constexpr Preset kPresets[] = {
    {"qwen2-0.5b", R"({"model_type": "qwen2", "vocab_size": 151936, "hidden_size": 896,
      "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
      "num_key_value_heads": 2, "max_position_embeddings": 131072, "rope_theta": 1000000.0,
      "tie_word_embeddings": true})"},
    {"qwen2-1.5b", R"({"model_type": "qwen2", "vocab_size": 151936, "hidden_size": 1536,
      "intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12,
      "num_key_value_heads": 2, "max_position_embeddings": 131072, "rope_theta": 1000000.0,
      "tie_word_embeddings": true})"},
    {"qwen2-7b", R"({"model_type": "qwen2", "vocab_size": 152064, "hidden_size": 3584,
      "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28,
      "num_key_value_heads": 4, "max_position_embeddings": 131072, "rope_theta": 1000000.0})"},
    {"qwen2-72b", R"({"model_type": "qwen2", "vocab_size": 152064, "hidden_size": 8192,
      "intermediate_size": 29568, "num_hidden_layers": 80, "num_attention_heads": 64,
      "num_key_value_heads": 8, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
      "rope_theta": 1000000.0})"},
    {"qwen2.5-0.5b", R"({"model_type": "qwen2", "vocab_size": 151936, "hidden_size": 896,
      "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
      "num_key_value_heads": 2, "max_position_embeddings": 32768, "rope_theta": 1000000.0,
      "tie_word_embeddings": true})"},
    {"qwen2.5-1.5b", R"({"model_type": "qwen2", "vocab_size": 151936, "hidden_size": 1536,
      "intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12,
      "num_key_value_heads": 2, "max_position_embeddings": 131072, "rope_theta": 1000000.0,
      "tie_word_embeddings": true})"},
    {"qwen2.5-3b", R"({"model_type": "qwen2", "vocab_size": 151936, "hidden_size": 2048,
      "intermediate_size": 11008, "num_hidden_layers": 36, "num_attention_heads": 16,
      "num_key_value_heads": 2, "max_position_embeddings": 32768, "rope_theta": 1000000.0,
      "tie_word_embeddings": true})"},
    {"qwen2.5-7b", R"({"model_type": "qwen2", "vocab_size": 152064, "hidden_size": 3584,
      "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28,
      "num_key_value_heads": 4, "max_position_embeddings": 131072, "rope_theta": 1000000.0})"},
    {"qwen2.5-14b", R"({"model_type": "qwen2", "vocab_size": 152064, "hidden_size": 5120,
      "intermediate_size": 13824, "num_hidden_layers": 48, "num_attention_heads": 40,
      "num_key_value_heads": 8, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
      "rope_theta": 1000000.0})"},
    {"qwen2.5-32b", R"({"model_type": "qwen2", "vocab_size": 152064, "hidden_size": 5120,
      "intermediate_size": 27648, "num_hidden_layers": 64, "num_attention_heads": 40,
      "num_key_value_heads": 8, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
      "rope_theta": 1000000.0})"},
    {"qwen2.5-72b", R"({"model_type": "qwen2", "vocab_size": 152064, "hidden_size": 8192,
      "intermediate_size": 29568, "num_hidden_layers": 80, "num_attention_heads": 64,
      "num_key_value_heads": 8, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
      "rope_theta": 1000000.0})"},
};

// As Llama, with biases of query, key and value.
void start(ModelConfig& model) {
  start_llama(model);
  model.add_qkv_bias = true;
}

// Of Qwen2.5's files; the library reads it for models that see pictures.
KeyRule no_mrope() {
  KeyRule rule = fixed_key("use_mrope", false);
  rule.write = nullptr;
  return rule;
}

KeyRules keys() {
  return joined(llama_sizes(), {rope_keys(), no_mrope(), windows_by_layer({.switched = true}),
                                tied_embeddings(/*missing=*/false)});
}

}  // namespace

const Family& qwen2() {
  static const Family kFamily{.name = "qwen2",
                              .model_type = "qwen2",
                              .architecture = "Qwen2ForCausalLM",
                              .base_prefix = "model.",
                              .ignored_tensors = llama_ignored_tensors(),
                              .start = start,
                              .keys = keys,
                              .names = llama_names,
                              .presets = kPresets};
  return kFamily;
}

}  // namespace pentatron::families
