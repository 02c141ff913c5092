// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "pentatron/config/layer_pattern.h"
#include "pentatron/families/llama/llama.h"
#include "pentatron/families/registry.h"
#include "pentatron/families/rope_keys.h"
#include "pentatron/families/window_keys.h"

namespace pentatron::families {
namespace {

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
  return joined(llama_sizes(), {rope_keys({.missing_theta = 2000000.0}), unrotated_layers(),
                                attention_and_mlp_biases(), windows_by_layer({.switched = true}),
                                tied_embeddings(/*missing=*/true)});
}

}  // namespace

const Family& smollm() {
  static const Family kFamily = of_llama_kind({.name = "smollm",
                                               .model_type = "smollm3",
                                               .architecture = "SmolLM3ForCausalLM",
                                               .keys = keys});
  return kFamily;
}

}  // namespace pentatron::families
