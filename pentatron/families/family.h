// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pentatron/families/key_rules.h"
#include "pentatron/families/name_map.h"

// A model family: what its published models share, and how Hugging Face's files say it. A folder a
// family, a line in registry.cc.
namespace pentatron::families {

// A published model. The facts stand as its config.json has them.
struct Preset {
  std::string name;    // "llama3.1-8b"
  std::string config;  // config.json without what changes no result
};
// Those of <family>/<family>.json (embedded at build time), in its order. kInternal: no such file,
// or a fault in it.
[[nodiscard]] std::span<const Preset> presets_of(std::string_view family);

// Models of text and pictures whose language model is one of a family's. That alone is read.
struct OuterModel {
  // What files put before names of the language model: before those with the family's base_prefix,
  // in its place, and before the others.
  struct Prefixes {
    std::string_view base;   // "language_model.model."
    std::string_view other;  // "language_model."
  };
  std::string_view model_type;  // of config.json, whose "text_config" is the language model's
  std::string_view architecture;
  std::string_view text_defaults;                 // what the library adds to text_config, as JSON
  std::span<const std::string_view> other_keys;   // beside text_config; they change no text
  std::span<const Prefixes> prefixes;             // in use by one version of the library or another
  std::span<const std::string_view> other_parts;  // beginnings of names of what is left out
};

struct Family {
  std::string_view name;
  std::string_view model_type = {};  // of config.json; of_llama_kind(): the name unless given
  std::string_view architecture;     // the class that has logits: "LlamaForCausalLM"
  // Files of the bare model leave this out of their names: "model."
  std::string_view base_prefix = {};
  // Ends of tensor names that old exports hold and no model reads: tables of angles, masks
  std::span<const std::string_view> ignored_tensors = {};
  // What all models of the family are and no key says. Dropout is off before it.
  void (*start)(ModelConfig& model) = nullptr;
  KeyRules (*keys)();
  std::span<const NameRule> (*names)(const ModelConfig& model) = nullptr;
  const OuterModel* outer = nullptr;  // null: there are none
  // Options of which start() sets others than the defaults, by destination, where no key says so
  std::vector<std::string_view> needs = {};
};

// All, in the order of the registry.
[[nodiscard]] std::span<const Family* const> families();
// By name; null when there is none.
[[nodiscard]] const Family* find_family(std::string_view name);

// A model as a config.json describes it. Sizes of heads, groups and feed-forward are resolved;
// seq_length is left to the run.
struct Description {
  const Family* family = nullptr;
  ModelConfig model;
  bool of_outer = false;  // the file describes family->outer
};

// kData: no JSON object, or a value of the wrong kind; kUnsupported: a model type, key or value
// that no family here knows. Messages name `path`, the key and near names.
[[nodiscard]] Description read_config(std::string_view text, const std::string& path);

// The config.json of a resolved model in a family, with 2-space indents. A model that the family
// does not describe exactly: kUnsupported, naming what differs.
[[nodiscard]] std::string write_config(const Family& family, const ModelConfig& model,
                                       std::string_view dtype);
// The first family that describes the model exactly; null when none does.
[[nodiscard]] const Family* family_of(const ModelConfig& model);

// What two models differ in, "hidden_size 64 and 128; ...", by the options that make a model
// another; empty when they are the same.
[[nodiscard]] std::string model_differences(const ModelConfig& a, const ModelConfig& b);

// kUnsupported, naming keys of config.json, when options of this version cannot say all that the
// description does: such a value would be lost on the way.
void check_expressible(const Description& description, const std::string& path);

}  // namespace pentatron::families
