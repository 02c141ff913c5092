// SPDX-License-Identifier: Apache-2.0
#include "pentatron/families/key_rules.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/base/json.h"

namespace pentatron::families {

KeyRule size_key(std::string key, std::int64_t ModelConfig::*field,
                 std::optional<std::int64_t> missing) {
  KeyRule rule{.keys = {key}};
  rule.read = [=](const ConfigFile& file, ModelConfig& model) {
    const bool absent = missing && file.find(key) == nullptr;
    model.*field = absent ? *missing : file.integer(key);
  };
  rule.write = [=](const ModelConfig& model, Json& json) { json[key] = model.*field; };
  return rule;
}

KeyRule number_key(std::string key, double ModelConfig::*field, std::optional<double> missing) {
  KeyRule rule{.keys = {key}};
  rule.read = [=](const ConfigFile& file, ModelConfig& model) {
    const bool absent = missing && file.find(key) == nullptr;
    model.*field = absent ? *missing : file.number(key);
  };
  rule.write = [=](const ModelConfig& model, Json& json) { json[key] = model.*field; };
  return rule;
}

KeyRule flag_key(std::string key, bool ModelConfig::*field, bool missing, bool inverted) {
  KeyRule rule{.keys = {key}};
  rule.read = [=](const ConfigFile& file, ModelConfig& model) {
    const bool value = file.find(key) == nullptr ? missing : file.flag(key);
    model.*field = value != inverted;
  };
  rule.write = [=](const ModelConfig& model, Json& json) {
    json[key] = (model.*field) != inverted;
  };
  return rule;
}

KeyRule optional_key(std::string key, std::optional<double> ModelConfig::*field,
                     std::optional<double> missing) {
  KeyRule rule{.keys = {key}};
  rule.read = [=](const ConfigFile& file, ModelConfig& model) {
    model.*field = std::nullopt;
    if (!file.json().contains(key)) {
      model.*field = missing;
    } else if (file.find(key) != nullptr) {
      model.*field = file.number(key);
    }
  };
  rule.write = [=](const ModelConfig& model, Json& json) {
    json[key] = (model.*field) ? Json(*(model.*field)) : Json(nullptr);
  };
  return rule;
}

KeyRule fixed_key(std::string key, Json value, std::optional<Json> missing) {
  KeyRule rule{.keys = {key}};
  rule.read = [=](const ConfigFile& file, ModelConfig&) {
    const Json* found = file.find(key);
    const Json& actual = found != nullptr ? *found : missing ? *missing : value;
    if (actual == value) return;
    file.refuse(key, dump_json(value) + ", the only value that works here");
  };
  rule.write = [=](const ModelConfig&, Json& json) { json[key] = value; };
  return rule;
}

KeyRule choice_key(std::string key, std::vector<std::string> values,
                   std::optional<std::string> missing) {
  KeyRule rule{.keys = {key}};
  rule.read = [=](const ConfigFile& file, ModelConfig&) {
    const bool absent = file.find(key) == nullptr;
    const std::string value = absent ? missing.value_or(values.front()) : file.text(key);
    if (std::find(values.begin(), values.end(), value) != values.end()) return;
    std::string expected;
    for (const std::string& one : values) expected += (expected.empty() ? "" : " or ") + one;
    file.refuse(key, expected);
  };
  rule.write = [=](const ModelConfig&, Json& json) { json[key] = values.front(); };
  return rule;
}

KeyRule ignored_keys(std::vector<std::string> keys) { return {.keys = std::move(keys)}; }

KeyRules usual_sizes() {
  return {size_key("vocab_size", &ModelConfig::vocab_size),
          size_key("hidden_size", &ModelConfig::hidden_size),
          size_key("intermediate_size", &ModelConfig::ffn_hidden_size),
          size_key("num_hidden_layers", &ModelConfig::num_layers),
          size_key("num_attention_heads", &ModelConfig::num_attention_heads),
          size_key("max_position_embeddings", &ModelConfig::max_position_embeddings)};
}

KeyRule residual_dropout(std::string residual, std::string embedding, double missing) {
  KeyRule rule{.keys = {residual, embedding}};
  rule.read = [=](const ConfigFile& file, ModelConfig& model) {
    const auto rate = [&](const std::string& key) {
      return file.find(key) == nullptr ? missing : file.number(key);
    };
    model.hidden_dropout = rate(residual);
    if (rate(embedding) != model.hidden_dropout) {
      file.refuse(embedding,
                  fmt::format("the value of '{}': there is one rate for both", residual));
    }
  };
  rule.write = [=](const ModelConfig& model, Json& json) {
    json[residual] = model.hidden_dropout;
    json[embedding] = model.hidden_dropout;
  };
  return rule;
}

KeyRule gelu_form(std::string key, std::string missing) {
  KeyRule rule{.keys = {key}};
  rule.read = [=](const ConfigFile& file, ModelConfig& model) {
    const std::string name = file.find(key) == nullptr ? missing : file.text(key);
    const bool tanh = name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast";
    if (!tanh && name != "gelu") {
      file.refuse(key, "gelu_new, gelu_pytorch_tanh, gelu_fast or gelu");
    }
    model.bias_gelu_fusion = tanh;
  };
  rule.write = [=](const ModelConfig& model, Json& json) {
    json[key] = model.bias_gelu_fusion ? "gelu_new" : "gelu";
  };
  return rule;
}

KeyRule key_value_heads(std::string key) {
  KeyRule rule{.keys = {key}};
  rule.read = [=](const ConfigFile& file, ModelConfig& model) {
    const std::int64_t heads = model.num_attention_heads;
    const std::int64_t groups = file.find(key) == nullptr ? heads : file.integer(key);
    if (groups > heads || heads % groups != 0) {
      file.refuse(key, fmt::format("a divisor of the {} attention heads", heads));
    }
    model.group_query_attention = groups != heads;
    model.num_query_groups = groups;
  };
  rule.write = [=](const ModelConfig& model, Json& json) { json[key] = model.num_query_groups; };
  return rule;
}

namespace {

bool flag_or_false(const ConfigFile& file, const char* key) {
  return file.find(key) != nullptr && file.flag(key);
}

bool has_attention_biases(const ModelConfig& model) {
  return model.add_bias_linear || (model.add_qkv_bias && model.add_attention_output_bias);
}

}  // namespace

KeyRule attention_biases() {
  KeyRule rule{.keys = {"attention_bias"}};
  rule.read = [](const ConfigFile& file, ModelConfig& model) {
    model.add_qkv_bias = model.add_attention_output_bias = flag_or_false(file, "attention_bias");
  };
  rule.write = [](const ModelConfig& model, Json& json) {
    json["attention_bias"] = has_attention_biases(model);
  };
  return rule;
}

KeyRule attention_and_mlp_biases() {
  KeyRule rule{.keys = {"attention_bias", "mlp_bias"}};
  rule.read = [](const ConfigFile& file, ModelConfig& model) {
    const bool attention = flag_or_false(file, "attention_bias");
    const bool mlp = flag_or_false(file, "mlp_bias");
    model.add_bias_linear = attention && mlp;
    model.add_qkv_bias = model.add_attention_output_bias = attention && !mlp;
    model.add_mlp_bias = mlp && !attention;
  };
  rule.write = [](const ModelConfig& model, Json& json) {
    json["attention_bias"] = has_attention_biases(model);
    json["mlp_bias"] = model.add_bias_linear || model.add_mlp_bias;
  };
  return rule;
}

KeyRule tied_embeddings(bool missing) {
  return flag_key("tie_word_embeddings", &ModelConfig::untie_embeddings_and_output_weights, missing,
                  /*inverted=*/true);
}

KeyRule head_size(std::optional<std::int64_t> missing) {
  KeyRule rule{.keys = {"head_dim"}};
  rule.read = [=](const ConfigFile& file, ModelConfig& model) {
    if (file.find("head_dim") != nullptr) {
      model.kv_channels = file.integer("head_dim");
      return;
    }
    if (!missing && model.hidden_size % model.num_attention_heads != 0) {
      file.refuse("head_dim", fmt::format("a size: hidden size {} does not divide by {} heads",
                                          model.hidden_size, model.num_attention_heads));
    }
    model.kv_channels = missing.value_or(model.hidden_size / model.num_attention_heads);
  };
  rule.write = [](const ModelConfig& model, Json& json) { json["head_dim"] = model.kv_channels; };
  return rule;
}

namespace {

// Of the library and of tools
constexpr const char* kLibrary[] = {"_name_or_path",
                                    "transformers_version",
                                    "torch_dtype",
                                    "dtype",
                                    "auto_map",
                                    "tokenizer_class",
                                    "prefix",
                                    "_attn_implementation",
                                    "attn_implementation",
                                    "torchscript",
                                    "use_bfloat16",
                                    "tf_legacy_loss",
                                    "return_dict",
                                    "output_attentions",
                                    "output_hidden_states",
                                    "use_cache",
                                    "id2label",
                                    "label2id",
                                    "problem_type",
                                    "finetuning_task",
                                    "task_specific_params",
                                    "chunk_size_feed_forward",
                                    "is_decoder",
                                    "tie_encoder_decoder",
                                    "cross_attention_hidden_size",
                                    "classifier_dropout",
                                    "summary_activation",
                                    "summary_first_dropout",
                                    "summary_proj_to_labels",
                                    "summary_type",
                                    "summary_use_proj",
                                    "pretraining_tp",
                                    "unsloth_version",
                                    "unsloth_fixed",
                                    "_unsloth_fixed",
                                    "vocab_file",
                                    "is_llama_config",
                                    "transformers.js_config"};
// Special tokens
constexpr const char* kSpecialTokens[] = {"bos_token_id",
                                          "eos_token_id",
                                          "pad_token_id",
                                          "sep_token_id",
                                          "cls_token_id",
                                          "mask_token_id",
                                          "unk_token_id",
                                          "decoder_start_token_id",
                                          "bos_token",
                                          "eos_token",
                                          "pad_token",
                                          "forced_bos_token_id",
                                          "forced_eos_token_id",
                                          "suppress_tokens",
                                          "begin_suppress_tokens",
                                          "bad_words_ids"};
// Generation
constexpr const char* kGeneration[] = {"max_length",
                                       "min_length",
                                       "do_sample",
                                       "early_stopping",
                                       "num_beams",
                                       "num_beam_groups",
                                       "diversity_penalty",
                                       "temperature",
                                       "top_k",
                                       "top_p",
                                       "typical_p",
                                       "repetition_penalty",
                                       "length_penalty",
                                       "no_repeat_ngram_size",
                                       "encoder_no_repeat_ngram_size",
                                       "num_return_sequences",
                                       "output_scores",
                                       "return_dict_in_generate",
                                       "remove_invalid_values",
                                       "exponential_decay_length_penalty"};

template <std::size_t N>
KeyRule ignored_list(const char* const (&keys)[N]) {
  return ignored_keys({std::begin(keys), std::end(keys)});
}

}  // namespace

const KeyRules& common_keys() {
  static const KeyRules kRules = {
      // Read by family.cc
      ignored_keys({"model_type", "architectures"}),
      ignored_list(kLibrary),
      ignored_list(kSpecialTokens),
      ignored_list(kGeneration),
      fixed_key("is_encoder_decoder", false),
      fixed_key("add_cross_attention", false),
      fixed_key("pruned_heads", Json::object()),
  };
  return kRules;
}

KeyRules joined(KeyRules first, KeyRules second) {
  std::move(second.begin(), second.end(), std::back_inserter(first));
  return first;
}

}  // namespace pentatron::families
