// SPDX-License-Identifier: Apache-2.0
#include "pentatron/families/adapter_config.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "pentatron/base/error.h"
#include "pentatron/base/format.h"
#include "pentatron/base/json.h"
#include "pentatron/families/config_file.h"

namespace pentatron::families {
namespace {

constexpr std::int64_t kMaxRank = 65536;

bool ends_in(std::string_view module, std::string_view key) {
  if (!module.ends_with(key)) return false;
  return module.size() == key.size() || module[module.size() - key.size() - 1] == '.';
}

template <typename T>
const T* matching(const std::map<std::string, T>& patterns, std::string_view module) {
  for (const auto& [key, value] : patterns) {
    if (ends_in(module, key)) return &value;
  }
  return nullptr;
}

bool is_name(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return c == '.' || c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
           (c >= 'A' && c <= 'Z');
  });
}

// Nothing was said, or nothing is meant.
bool is_empty(const Json* value) {
  return value == nullptr || value->empty() || (value->is_boolean() && !value->get<bool>());
}

// Keys that are read, and those that change nothing of what trained adapters compute.
constexpr std::array<std::string_view, 29> kKnown = {"peft_type",
                                                     "task_type",
                                                     "r",
                                                     "lora_alpha",
                                                     "lora_dropout",
                                                     "use_rslora",
                                                     "use_dora",
                                                     "rank_pattern",
                                                     "alpha_pattern",
                                                     "target_modules",
                                                     "fan_in_fan_out",
                                                     "bias",
                                                     "init_lora_weights",
                                                     "inference_mode",
                                                     "base_model_name_or_path",
                                                     "auto_mapping",
                                                     "revision",
                                                     "exclude_modules",
                                                     "layers_pattern",
                                                     "layers_to_transform",
                                                     "megatron_core",
                                                     "peft_version",
                                                     "qalora_group_size",
                                                     "loftq_config",
                                                     "eva_config",
                                                     "corda_config",
                                                     "lora_ga_config",
                                                     "ensure_weight_tying",
                                                     "runtime_config"};

void check_method(const ConfigFile& file) {
  if (file.text("peft_type") != "LORA") file.refuse("peft_type", "LORA");
  if (file.find("bias") != nullptr && file.text("bias") != "none") file.refuse("bias", "none");
  for (const auto& [key, value] : file.json().items()) {
    if (value.is_null() || is_empty(&value)) continue;
    if (std::ranges::find(kKnown, key) == kKnown.end()) {
      file.refuse(key, "null: this form of LoRA is not here");
    }
  }
  const Json* start = file.find("init_lora_weights");
  if (start == nullptr || !start->is_string()) return;
  const auto name = start->get<std::string>();
  if (name != "gaussian" && name != "orthogonal" && name != "eva") {
    file.refuse("init_lora_weights",
                "true, false, gaussian, orthogonal or eva: others change the weights underneath, "
                "which the adapter's files do not hold; convert the adapter to LoRA first");
  }
}

template <typename Read>
void for_each_pattern(const ConfigFile& file, const char* key, Read read) {
  const Json* patterns = file.find(key);
  if (patterns == nullptr) return;
  if (!patterns->is_object()) file.refuse(key, "an object");
  const ConfigFile inside(*patterns, file.path() + ": " + key);
  for (const auto& [name, value] : patterns->items()) {
    PENTATRON_CHECK(is_name(name), kUnsupported,
                    "{}: '{}' has the pattern {}: expected the end of a module's name", file.path(),
                    key, quoted_for_message(name));
    read(inside, name);
  }
}

}  // namespace

std::int64_t AdapterConfig::rank_of(std::string_view module) const {
  const std::int64_t* own = matching(ranks, module);
  return own != nullptr ? *own : rank;
}

double AdapterConfig::scale_of(std::string_view module) const {
  const double* own = matching(alphas, module);
  const auto divisor = static_cast<double>(rank_of(module));
  return (own != nullptr ? *own : alpha) / (rslora ? std::sqrt(divisor) : divisor);
}

AdapterConfig read_adapter_config(std::string_view text, const std::string& path) {
  const Json json = parse_json(text, path);
  PENTATRON_CHECK(json.is_object(), kData, "{}: expected a JSON object", path);
  const ConfigFile file(json, path);
  check_method(file);
  const auto flag = [&](const char* key) { return file.find(key) != nullptr && file.flag(key); };
  AdapterConfig config;
  config.rank = file.integer("r");
  if (config.rank > kMaxRank) file.refuse("r", "a rank up to 65536");
  config.alpha = file.number("lora_alpha");
  if (file.find("lora_dropout") != nullptr) config.dropout = file.number("lora_dropout");
  if (config.dropout < 0 || config.dropout >= 1) file.refuse("lora_dropout", "from 0 to below 1");
  config.rslora = flag("use_rslora");
  config.dora = flag("use_dora");
  for_each_pattern(file, "rank_pattern", [&](const ConfigFile& inside, const std::string& name) {
    config.ranks[name] = inside.integer(name);
    if (config.ranks[name] > kMaxRank) inside.refuse(name, "a rank up to 65536");
  });
  for_each_pattern(file, "alpha_pattern", [&](const ConfigFile& inside, const std::string& name) {
    config.alphas[name] = inside.number(name);
  });
  return config;
}

std::string write_adapter_config(const AdapterConfig& config,
                                 const std::vector<std::string>& modules, const std::string& base,
                                 bool transposed) {
  Json json;
  json["peft_type"] = "LORA";
  json["task_type"] = "CAUSAL_LM";
  json["base_model_name_or_path"] = base.empty() ? Json(nullptr) : Json(base);
  json["r"] = config.rank;
  json["lora_alpha"] = config.alpha;
  json["lora_dropout"] = config.dropout;
  json["use_rslora"] = config.rslora;
  json["use_dora"] = config.dora;
  json["rank_pattern"] = config.ranks;
  json["alpha_pattern"] = config.alphas;
  json["target_modules"] = modules;
  json["fan_in_fan_out"] = transposed;
  json["bias"] = "none";
  json["init_lora_weights"] = true;
  json["inference_mode"] = true;
  json["modules_to_save"] = nullptr;
  return dump_json(json, 2) + "\n";
}

}  // namespace pentatron::families
