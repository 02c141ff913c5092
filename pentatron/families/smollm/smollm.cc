// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "pentatron/config/layer_pattern.h"
#include "pentatron/families/llama/llama.h"
#include "pentatron/families/registry.h"
#include "pentatron/families/rope_keys.h"
#include "pentatron/families/window_keys.h"

namespace pentatron::families {
namespace {

// SmolLM and SmolLM2 are models of the Llama kind; SmolLM3 leaves the rotation out of every fourth
// layer.
constexpr Preset kPresets[] = {
    {"smollm-135m", R"({"model_type": "llama", "vocab_size": 49152, "hidden_size": 576,
      "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9,
      "num_key_value_heads": 3, "max_position_embeddings": 2048, "rms_norm_eps": 1e-5,
      "tie_word_embeddings": true})"},
    {"smollm-360m", R"({"model_type": "llama", "vocab_size": 49152, "hidden_size": 960,
      "intermediate_size": 2560, "num_hidden_layers": 32, "num_attention_heads": 15,
      "num_key_value_heads": 5, "max_position_embeddings": 2048, "rms_norm_eps": 1e-5,
      "tie_word_embeddings": true})"},
    {"smollm-1.7b", R"({"model_type": "llama", "vocab_size": 49152, "hidden_size": 2048,
      "intermediate_size": 8192, "num_hidden_layers": 24, "num_attention_heads": 32,
      "num_key_value_heads": 32, "max_position_embeddings": 2048, "rms_norm_eps": 1e-5,
      "tie_word_embeddings": true})"},
    {"smollm2-135m", R"({"model_type": "llama", "vocab_size": 49152, "hidden_size": 576,
      "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9,
      "num_key_value_heads": 3, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
      "rope_theta": 100000.0, "tie_word_embeddings": true})"},
    {"smollm2-360m", R"({"model_type": "llama", "vocab_size": 49152, "hidden_size": 960,
      "intermediate_size": 2560, "num_hidden_layers": 32, "num_attention_heads": 15,
      "num_key_value_heads": 5, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
      "rope_theta": 100000.0, "tie_word_embeddings": true})"},
    {"smollm2-1.7b", R"({"model_type": "llama", "vocab_size": 49152, "hidden_size": 2048,
      "intermediate_size": 8192, "num_hidden_layers": 24, "num_attention_heads": 32,
      "num_key_value_heads": 32, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
      "rope_theta": 130000.0, "tie_word_embeddings": true})"},
    {"smollm3-3b", R"({"model_type": "smollm3", "vocab_size": 128256, "hidden_size": 2048,
      "intermediate_size": 11008, "num_hidden_layers": 36, "num_attention_heads": 16,
      "num_key_value_heads": 4, "max_position_embeddings": 65536, "rope_theta": 5000000.0,
      "no_rope_layer_interval": 4, "tie_word_embeddings": true})"},
};

// no_rope_layers: 1 where a layer rotates, whatever its name says; where it is missing, every
// no_rope_layer_interval-th does not.
KeyRule unrotated_layers() {
  KeyRule rule{.keys = {"no_rope_layers", "no_rope_layer_interval"}};
  rule.read = [](const ConfigFile& file, ModelConfig& model) {
    const bool said = file.find("no_rope_layer_interval") != nullptr;
    const std::int64_t interval = said ? file.integer("no_rope_layer_interval") : 4;
    const Json* list = file.find("no_rope_layers");
    std::string pattern;
    bool regular = true;
    bool any = false;
    for (std::int64_t layer = 0; layer < model.num_layers; ++layer) {
      bool unrotated = (layer + 1) % interval == 0;
      if (list != nullptr) {
        if (!list->is_array() || list->size() != static_cast<std::size_t>(model.num_layers)) {
          file.refuse("no_rope_layers", fmt::format("a list of {} numbers", model.num_layers));
        }
        const Json& flag = (*list)[static_cast<std::size_t>(layer)];
        if (flag != 0 && flag != 1) file.refuse("no_rope_layers", "zeros and ones");
        regular = regular && unrotated == (flag == 0);
        unrotated = flag == 0;
      }
      any = any || unrotated;
      pattern += fmt::format("{}{}", pattern.empty() ? "" : ",", unrotated ? 1 : 0);
    }
    const bool divides = model.num_layers % interval == 0;
    if (any) {
      model.no_rope_freq = regular && divides ? std::to_string(interval) : "[" + pattern + "]";
    }
  };
  rule.write = [](const ModelConfig& model, Json& json) {
    Json list = Json::array();
    for (const bool unrotated :
         config::layer_pattern(model.no_rope_freq, model.num_layers, "--no-rope-freq")) {
      list.push_back(unrotated ? 0 : 1);
    }
    json["no_rope_layers"] = list;
  };
  return rule;
}

KeyRules keys() {
  return joined(llama_sizes(),
                {rope_keys({.missing_theta = 2000000.0}), unrotated_layers(),
                 fixed_key("attention_bias", false), fixed_key("mlp_bias", false),
                 windows_by_layer({.switched = true}), tied_embeddings(/*missing=*/true)});
}

}  // namespace

const Family& smollm() {
  static const Family kFamily{.name = "smollm",
                              .model_type = "smollm3",
                              .architecture = "SmolLM3ForCausalLM",
                              .base_prefix = "model.",
                              .ignored_tensors = llama_ignored_tensors(),
                              .start = start_llama,
                              .keys = keys,
                              .names = llama_names,
                              .presets = kPresets};
  return kFamily;
}

}  // namespace pentatron::families
