// SPDX-License-Identifier: Apache-2.0
#include "pentatron/families/family.h"

#include <algorithm>
#include <set>

#include "pentatron/base/error.h"
#include "pentatron/base/format.h"
#include "pentatron/base/json.h"
#include "pentatron/config/config_json.h"
#include "pentatron/config/option_index.h"
#include "pentatron/families/near_names.h"

namespace pentatron::families {
namespace {

KeyRules all_rules(const Family& family) { return joined(family.keys(), common_keys()); }

const Family& family_for(const ConfigFile& file) {
  if (file.find("quantization_config") != nullptr) {
    PENTATRON_THROW(kUnsupported,
                    "{}: 'quantization_config' says that the weights are quantised, which is not "
                    "supported: take the model in its original dtype",
                    file.path());
  }
  const std::string type = file.text("model_type");
  std::vector<std::string> known;
  for (const Family* family : families()) {
    if (family->model_type == type) return *family;
    known.emplace_back(family->model_type);
  }
  for (const Family* family : families()) {
    if (family->outer != nullptr) known.emplace_back(family->outer->model_type);
  }
  PENTATRON_THROW(kUnsupported, "{}: no family has the model_type {}{}; there are: {}", file.path(),
                  quoted_for_message(type), did_you_mean(type, known), fmt::join(known, ", "));
}

void check_keys(const ConfigFile& file, const KeyRules& rules) {
  std::set<std::string, std::less<>> known;
  for (const KeyRule& rule : rules) known.insert(rule.keys.begin(), rule.keys.end());
  const std::vector<std::string> names(known.begin(), known.end());
  std::string unknown;
  for (const auto& [key, value] : file.json().items()) {
    if (known.contains(key) || value.is_null()) continue;
    unknown += fmt::format("{}{}{}", unknown.empty() ? "" : ", ", quoted_for_message(key),
                           did_you_mean(key, names));
  }
  PENTATRON_CHECK(unknown.empty(), kUnsupported,
                  "{}: unknown keys, which may change the model: {}. Remove those that do not",
                  file.path(), unknown);
}

// The family whose models of text and pictures the file describes; null: it is none of those.
const Family* family_of_outer(const ConfigFile& file) {
  if (file.find("model_type") == nullptr || file.find("quantization_config") != nullptr) {
    return nullptr;
  }
  const std::string type = file.text("model_type");
  for (const Family* family : families()) {
    if (family->outer != nullptr && family->outer->model_type == type) return family;
  }
  return nullptr;
}

// config.json of the language model inside.
Json inner_config(const ConfigFile& file, const Family& family) {
  const OuterModel& outer = *family.outer;
  const Json* list = file.find("architectures");
  if (list != nullptr && *list != Json::array({std::string(outer.architecture)})) {
    file.refuse("architectures", fmt::format("[\"{}\"]", outer.architecture));
  }
  const Json* text = file.find("text_config");
  if (text == nullptr || !text->is_object()) file.refuse("text_config", "an object");
  KeyRules rules = common_keys();
  rules.push_back(ignored_keys({outer.other_keys.begin(), outer.other_keys.end()}));
  rules.push_back(ignored_keys({"text_config", "tie_word_embeddings"}));
  check_keys(file, rules);
  Json inner = parse_json(outer.text_defaults, "defaults of the library");
  inner["model_type"] = family.model_type;
  if (const Json* tied = file.find("tie_word_embeddings")) inner["tie_word_embeddings"] = *tied;
  for (const auto& [key, value] : text->items()) inner[key] = value;
  if (inner["model_type"] != std::string(family.model_type)) {
    ConfigFile(*text, file.path() + ": text_config").refuse("model_type", family.model_type);
  }
  inner.erase("architectures");
  return inner;
}

void check_architecture(const ConfigFile& file, const Family& family) {
  const Json* list = file.find("architectures");
  if (list == nullptr) return;
  const bool fine =
      list->is_array() && list->size() == 1 && list->front() == std::string(family.architecture);
  // A bare model has no logits of its own; its weights are those of the whole one when it is tied.
  const bool bare = list->is_array() && list->size() == 1 && list->front().is_string() &&
                    list->front().get_ref<const std::string&>().ends_with("Model");
  if (!fine && !bare) file.refuse("architectures", fmt::format("[\"{}\"]", family.architecture));
}

ModelConfig read_model(const ConfigFile& file, const Family& family, const KeyRules& rules) {
  ModelConfig model;
  model.hidden_dropout = 0.0;
  model.attention_dropout = 0.0;
  family.start(model);
  for (const KeyRule& rule : rules) {
    if (rule.read) rule.read(file, model);
  }
  if (model.kv_channels == 0) model.kv_channels = model.hidden_size / model.num_attention_heads;
  if (!model.group_query_attention) model.num_query_groups = model.num_attention_heads;
  return model;
}

Json config_of(const Family& family, const ModelConfig& model) {
  Json json = Json::object();
  for (const KeyRule& rule : all_rules(family)) {
    if (rule.write) rule.write(model, json);
  }
  json["model_type"] = family.model_type;
  json["architectures"] = {family.architecture};
  return json;
}

// As a model comes back from a file that only holds what options say.
ModelConfig through_options(const ModelConfig& model) {
  config::RunConfig run;
  run.model = model;
  return config::from_json(config::to_json(run), "options").model;
}

Json identity(const ModelConfig& model) {
  config::RunConfig run;
  run.model = model;
  return parse_json(config::to_json(run, config::Resume::kModel), "options");
}

}  // namespace

const Family* find_family(std::string_view name) {
  for (const Family* family : families()) {
    if (family->name == name) return family;
  }
  return nullptr;
}

Description read_config(std::string_view text, const std::string& path) {
  const Json json = parse_json(text, path);
  PENTATRON_CHECK(json.is_object(), kData, "{}: expected an object, found {}", path,
                  json.type_name());
  const ConfigFile whole(json, path);
  const Family* const around = family_of_outer(whole);
  const Json inner = around != nullptr ? inner_config(whole, *around) : Json();
  const ConfigFile file = around != nullptr ? ConfigFile(inner, path + ": text_config") : whole;
  const Family& family = family_for(file);
  check_architecture(file, family);
  const KeyRules rules = all_rules(family);
  check_keys(file, rules);
  return {&family, read_model(file, family, rules), around != nullptr};
}

std::string write_config(const Family& family, const ModelConfig& model, std::string_view dtype) {
  Json json = config_of(family, model);
  const std::string text = dump_json(json);
  const ModelConfig back =
      read_config(text, fmt::format("a {} of these options", family.name)).model;
  const std::string differences = model_differences(model, back);
  PENTATRON_CHECK(differences.empty(), kUnsupported,
                  "the family {} has no such model (here, and as its config.json would say it): {}",
                  family.name, differences);
  json["torch_dtype"] = dtype;
  // Where they are missing, the library's own defaults would end texts.
  json["bos_token_id"] = nullptr;
  json["eos_token_id"] = nullptr;
  json["pad_token_id"] = nullptr;
  return dump_json(json, 2) + "\n";
}

const Family* family_of(const ModelConfig& model) {
  for (const Family* family : families()) {
    try {
      static_cast<void>(write_config(*family, model, "float32"));
      return family;
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::kInternal) throw;
    }
  }
  return nullptr;
}

std::string model_differences(const ModelConfig& a, const ModelConfig& b) {
  const Json left = identity(a);
  const Json right = identity(b);
  std::string text;
  for (const auto& [name, value] : left.items()) {
    if (value == right.at(name)) continue;
    text += fmt::format("{}{} {} and {}", text.empty() ? "" : "; ", name, dump_json(value),
                        dump_json(right.at(name)));
  }
  return text;
}

void check_expressible(const Description& description, const std::string& path) {
  const config::OptionIndex options;
  for (const std::string_view dest : description.family->needs) {
    const config::OptionSpec* row = options.find_dest(dest);
    PENTATRON_CHECK(row != nullptr && row->field.set != nullptr, kUnsupported,
                    "{}: models of the family {} need '{}', which no option of this version sets",
                    path, description.family->name, dest);
  }
  const Json wanted = config_of(*description.family, description.model);
  const Json kept = config_of(*description.family, through_options(description.model));
  std::vector<std::string> lost;
  for (const auto& [key, value] : wanted.items()) {
    if (kept.value(key, Json()) != value) lost.push_back(key);
  }
  PENTATRON_CHECK(lost.empty(), kUnsupported, "{}: no option of this version says what '{}' does",
                  path, fmt::join(lost, "' and '"));
}

}  // namespace pentatron::families
