// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/base/format.h"
#include "pentatron/config/choices.h"
#include "pentatron/config/rotary_forms.h"
#include "pentatron/families/llama/llama.h"
#include "pentatron/families/registry.h"
#include "pentatron/families/rope_keys.h"
#include "pentatron/families/window_keys.h"

namespace pentatron::families {
namespace {

std::vector<std::string> factors(const ConfigFile& file, std::string_view key) {
  constexpr std::size_t kMost = 4096;
  const Json* found = file.find(key);
  if (found == nullptr || !found->is_array() || found->empty() || found->size() > kMost) {
    file.refuse(key, "a list of numbers, one for each pair of rotated channels");
  }
  std::vector<std::string> words;
  for (const Json& value : *found) {
    if (!value.is_number() || !(value.get<double>() > 0.0)) file.refuse(key, "numbers above 0");
    words.push_back(fmt::format("{}", value.get<double>()));
  }
  return words;
}

Json numbers(const std::vector<std::string>& words) {
  Json list = Json::array();
  for (const std::string& word : words) list.push_back(std::stod(word));
  return list;
}

// LongRoPE of the 128k models: `scaling` is the object of its numbers, which stands in the file.
// Older files call it "su".
void read_longrope(const ConfigFile& file, const ConfigFile& scaling, ModelConfig& model) {
  for (const auto& [key, value] : scaling.json().items()) {
    const bool known = key == "type" || key == "rope_type" || key == "short_factor" ||
                       key == "long_factor" || key == "rope_theta" || key == "factor" ||
                       key == "partial_rotary_factor" || key == "attention_factor" ||
                       key == "original_max_position_embeddings";
    if (!known && !value.is_null()) {
      PENTATRON_THROW(kUnsupported, "{}: unknown key {}, which may change the model",
                      scaling.path(), quoted_for_message(key));
    }
  }
  model.position_embedding_type = "longrope";
  model.longrope_short_factor = factors(scaling, "short_factor");
  model.longrope_long_factor = factors(scaling, "long_factor");
  constexpr const char* kOriginal = "original_max_position_embeddings";
  const ConfigFile& holder = scaling.find(kOriginal) != nullptr ? scaling : file;
  model.longrope_original_max_position_embeddings = holder.integer(kOriginal, /*least=*/2);
  // What the two lengths give; another factor cannot be said here.
  const double scale = static_cast<double>(file.integer("max_position_embeddings")) /
                       static_cast<double>(model.longrope_original_max_position_embeddings);
  const double magnitude = config::longrope_magnitude(
      file.integer("max_position_embeddings"), model.longrope_original_max_position_embeddings);
  for (const auto& [key, value] : {std::pair{"factor", scale}, {"attention_factor", magnitude}}) {
    if (scaling.find(key) != nullptr && std::abs(scaling.number(key) - value) > 1e-6 * value) {
      scaling.refuse(key, fmt::format("{}, as the lengths have it", value));
    }
  }
}

// The library takes "yarn" for another scaling, that of its own long models, and knows no others.
KeyRule phi3_rope() {
  KeyRule rule = rope_keys({.share = "partial_rotary_factor"});
  rule.keys.emplace_back("original_max_position_embeddings");  // counts with longrope alone
  rule.read = [read = rule.read](const ConfigFile& file, ModelConfig& model) {
    // The other numbers of the rotation as if there were no scaling.
    Json plain = file.json();
    Json scaling = Json::object();
    for (const char* key : {"rope_scaling", "rope_parameters"}) {
      const Json* found = file.find(key);
      if (found == nullptr || !found->is_object()) continue;
      const std::string type = found->value("rope_type", found->value("type", std::string()));
      if (type != "longrope" && type != "su") continue;
      if (!scaling.empty() && *found != scaling) file.refuse(key, "what 'rope_scaling' says");
      scaling = *found;
      plain[key] = Json::object();
      for (const char* kept : {"rope_theta", "partial_rotary_factor"}) {
        if (scaling.contains(kept)) plain[key][kept] = scaling[kept];
      }
    }
    read(ConfigFile(plain, file.path()), model);
    if (config::position_kind(model) != config::PositionKind::kRope)
      file.refuse("rope_scaling", "null");
    if (!scaling.empty()) {
      read_longrope(file, ConfigFile(scaling, file.path() + ": rope_scaling"), model);
    }
  };
  rule.write = [write = rule.write](const ModelConfig& model, Json& json) {
    write(model, json);
    if (config::position_kind(model) != config::PositionKind::kLongRope) return;
    json["rope_scaling"] = {{"type", "longrope"},
                            {"short_factor", numbers(model.longrope_short_factor)},
                            {"long_factor", numbers(model.longrope_long_factor)}};
    json["original_max_position_embeddings"] = model.longrope_original_max_position_embeddings;
  };
  return rule;
}

// Keys of Phi-4-mini that the library does not know: read, never written.
KeyRule as_published(const char* key, Json value) {
  KeyRule rule = fixed_key(key, std::move(value));
  rule.write = {};
  return rule;
}

KeyRules keys() {
  return joined(llama_sizes(),
                {phi3_rope(), residual_dropout("resid_pdrop", "embd_pdrop", /*missing=*/0.0),
                 fixed_key("attention_bias", false), window_of_all_layers(/*missing=*/0),
                 tied_embeddings(/*missing=*/false), as_published("mlp_bias", false),
                 as_published("lm_head_bias", false), as_published("full_attn_mod", 1),
                 as_published("interpolate_factor", 1)});
}

// Query, key and value in one tensor, gate and up in another.
std::span<const NameRule> names(const ModelConfig&) {
  constexpr std::string_view kQkv = "model.layers.{}.self_attn.qkv_proj.";
  constexpr std::string_view kGateUp = "model.layers.{}.mlp.gate_up_proj.";
  static const std::vector<NameRule> kNames =
      llama_names_with({{"decoder.layers.{}.self_attention.linear_qkv.q.", kQkv, stacked_query},
                        {"decoder.layers.{}.self_attention.linear_qkv.k.", kQkv, stacked_key},
                        {"decoder.layers.{}.self_attention.linear_qkv.v.", kQkv, stacked_value},
                        {"decoder.layers.{}.mlp.linear_fc1.gate.", kGateUp, stacked_gate},
                        {"decoder.layers.{}.mlp.linear_fc1.up.", kGateUp, stacked_up}});
  return kNames;
}

}  // namespace

const Family& phi3() {
  static const Family kFamily = of_llama_kind(
      {.name = "phi3", .architecture = "Phi3ForCausalLM", .keys = keys, .names = names});
  return kFamily;
}

}  // namespace pentatron::families
