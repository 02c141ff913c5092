// SPDX-License-Identifier: Apache-2.0
#include "pentatron/families/llama/llama.h"
#include "pentatron/families/registry.h"
#include "pentatron/families/rope_keys.h"
#include "pentatron/families/window_keys.h"

namespace pentatron::families {
namespace {

constexpr Preset kPresets[] = {
    {"mistral-7b-v0.1", R"({"model_type": "mistral", "vocab_size": 32000, "hidden_size": 4096,
      "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
      "num_key_value_heads": 8, "max_position_embeddings": 32768, "rms_norm_eps": 1e-5,
      "rope_theta": 10000.0, "sliding_window": 4096})"},
    {"mistral-7b-v0.3", R"({"model_type": "mistral", "vocab_size": 32768, "hidden_size": 4096,
      "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
      "num_key_value_heads": 8, "max_position_embeddings": 32768, "rms_norm_eps": 1e-5,
      "rope_theta": 1000000.0, "sliding_window": null})"},
    {"mistral-nemo-12b", R"({"model_type": "mistral", "vocab_size": 131072, "hidden_size": 5120,
      "intermediate_size": 14336, "num_hidden_layers": 40, "num_attention_heads": 32,
      "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 131072,
      "rms_norm_eps": 1e-5, "rope_theta": 1000000.0, "sliding_window": null})"},
};

KeyRules keys() {
  return joined(llama_sizes(), {rope_keys(), window_of_all_layers(/*missing=*/4096),
                                tied_embeddings(/*missing=*/false)});
}

}  // namespace

const Family& mistral() {
  static const Family kFamily{.name = "mistral",
                              .model_type = "mistral",
                              .architecture = "MistralForCausalLM",
                              .base_prefix = "model.",
                              .ignored_tensors = llama_ignored_tensors(),
                              .start = start_llama,
                              .keys = keys,
                              .names = llama_names,
                              .presets = kPresets};
  return kFamily;
}

}  // namespace pentatron::families
