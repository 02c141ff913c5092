// SPDX-License-Identifier: Apache-2.0
#include "pentatron/families/presets.h"

#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/base/format.h"
#include "pentatron/base/json.h"
#include "pentatron/families/near_names.h"
#include "pentatron/families/preset_files.h"

namespace pentatron::families {

namespace {

std::vector<Preset> read_presets(const EmbeddedFile& file) {
  std::vector<Preset> presets;
  for (const nlohmann::json& row : parse_json(file.content, file.name)) {
    presets.push_back({.name = row.at("name"), .config = dump_json(row.at("config"))});
  }
  return presets;
}

using PresetsByFile = std::map<std::string_view, std::vector<Preset>>;

PresetsByFile read_all_presets() {
  PresetsByFile all;
  for (const EmbeddedFile& file : preset_files()) all.emplace(file.name, read_presets(file));
  return all;
}

}  // namespace

std::span<const Preset> presets_of(std::string_view family) {
  static const PresetsByFile kAll = read_all_presets();
  const auto found = kAll.find(fmt::format("{}.json", family));
  PENTATRON_CHECK(found != kAll.end(), kInternal, "no presets of the family {} were built in",
                  family);
  return found->second;
}

config::ValueLayer layer_of(const ModelConfig& model, config::Origin origin, std::string label) {
  config::RunConfig run;
  run.model = model;
  return config::layer_from_config(run, origin, std::move(label), "model");
}

Description preset_model(std::string_view name) {
  std::vector<std::string> known;
  for (const Family* family : families()) {
    for (const Preset& preset : presets_of(family->name)) {
      if (preset.name == name) {
        return read_config(preset.config, fmt::format("the preset {}", name));
      }
      known.emplace_back(preset.name);
    }
  }
  PENTATRON_THROW(kConfig,
                  "--model-preset {}: no such preset{}; pentatron options --presets lists them",
                  quoted_for_message(name), did_you_mean(name, known));
}

config::ValueLayer preset_layer(std::string_view name) {
  const Description preset = preset_model(name);
  check_expressible(preset, fmt::format("--model-preset {}", name));
  return layer_of(preset.model, config::Origin::kPreset, std::string(name));
}

std::string preset_table() {
  std::string text =
      fmt::format("{:<18} {:<11} {:>6} {:>6} {:>6} {:>5} {:>6} {:>7} {:>9}\n", "preset", "family",
                  "layers", "hidden", "ffn", "heads", "groups", "vocab", "positions");
  for (const Family* family : families()) {
    for (const Preset& preset : presets_of(family->name)) {
      const Description d = preset_model(preset.name);
      const ModelConfig& m = d.model;
      text += fmt::format("{:<18} {:<11} {:>6} {:>6} {:>6} {:>5} {:>6} {:>7} {:>9}\n", preset.name,
                          d.family->name, m.num_layers, m.hidden_size, m.ffn_hidden_size,
                          m.num_attention_heads, m.num_query_groups, m.vocab_size,
                          m.max_position_embeddings);
    }
  }
  return text + "\nEach fills in the model's options; give --seq-length and the data yourself.";
}

}  // namespace pentatron::families
