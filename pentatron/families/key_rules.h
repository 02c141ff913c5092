// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "pentatron/config/config.h"
#include "pentatron/families/config_file.h"

// How keys of a config.json and fields of ModelConfig say the same, both ways. A family is a list
// of such rules (family.h); what no rule names is an unknown key.
namespace pentatron::families {

using config::ModelConfig;

struct KeyRule {
  std::vector<std::string> keys;
  // Null: the keys change no result.
  std::function<void(const ConfigFile& file, ModelConfig& model)> read = {};
  std::function<void(const ModelConfig& model, Json& json)> write = {};
};
using KeyRules = std::vector<KeyRule>;

// `missing`: the library's default; none: the key is needed.
[[nodiscard]] KeyRule size_key(std::string key, std::int64_t ModelConfig::*field,
                               std::optional<std::int64_t> missing = {});
[[nodiscard]] KeyRule number_key(std::string key, double ModelConfig::*field,
                                 std::optional<double> missing = {});
[[nodiscard]] KeyRule flag_key(std::string key, bool ModelConfig::*field, bool missing,
                               bool inverted = false);
// A number, or null for none.
[[nodiscard]] KeyRule optional_key(std::string key, std::optional<double> ModelConfig::*field,
                                   std::optional<double> missing = {});
// The one value that works here; `missing`: what the library takes where the key is missing, if
// that is another one.
[[nodiscard]] KeyRule fixed_key(std::string key, Json value, std::optional<Json> missing = {});
// One value of several with the same meaning; the first is written.
[[nodiscard]] KeyRule choice_key(std::string key, std::vector<std::string> values,
                                 std::optional<std::string> missing = {});
// Keys that change no result of the model: special tokens, caches, names.
[[nodiscard]] KeyRule ignored_keys(std::vector<std::string> keys);

// vocab_size, hidden_size, intermediate_size, num_hidden_layers, num_attention_heads and
// max_position_embeddings, as most families call them.
[[nodiscard]] KeyRules usual_sizes();
// One rate here for the residual stream and for the embedding's output: two keys of one value.
[[nodiscard]] KeyRule residual_dropout(std::string residual, std::string embedding, double missing);
// GELU in its tanh form, the fused kernel's (gelu_new, gelu_pytorch_tanh, gelu_fast), or in the erf
// form (gelu).
[[nodiscard]] KeyRule gelu_form(std::string key, std::string missing);
// num_key_value_heads; missing: as many as heads.
[[nodiscard]] KeyRule key_value_heads(std::string key = "num_key_value_heads");
// attention_bias: of query, key, value and attention's output, in a model with no other.
[[nodiscard]] KeyRule attention_biases();
// attention_bias and mlp_bias, of all layers of the feed-forward; each with or without the other.
[[nodiscard]] KeyRule attention_and_mlp_biases();
// tie_word_embeddings
[[nodiscard]] KeyRule tied_embeddings(bool missing);
// head_dim; missing: hidden size / heads, where the model has that.
[[nodiscard]] KeyRule head_size(std::optional<std::int64_t> missing = {});

// What every config.json may hold beside its model's own keys. Families and presets do not repeat
// them.
[[nodiscard]] const KeyRules& common_keys();

// Both lists together.
[[nodiscard]] KeyRules joined(KeyRules first, KeyRules second);

}  // namespace pentatron::families
