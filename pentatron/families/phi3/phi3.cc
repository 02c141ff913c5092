// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/base/format.h"
#include "pentatron/config/rotary_forms.h"
#include "pentatron/families/llama/llama.h"
#include "pentatron/families/registry.h"
#include "pentatron/families/rope_keys.h"
#include "pentatron/families/window_keys.h"

namespace pentatron::families {
namespace {

// Query, key and value in one tensor, gate and up in another.
constexpr NameRule kNames[] = {
    {"embedding.word_embeddings.", "model.embed_tokens."},
    {"decoder.layers.{}.input_layernorm.", "model.layers.{}.input_layernorm."},
    {"decoder.layers.{}.self_attention.linear_qkv.q.", "model.layers.{}.self_attn.qkv_proj.",
     stacked_query},
    {"decoder.layers.{}.self_attention.linear_qkv.k.", "model.layers.{}.self_attn.qkv_proj.",
     stacked_key},
    {"decoder.layers.{}.self_attention.linear_qkv.v.", "model.layers.{}.self_attn.qkv_proj.",
     stacked_value},
    {"decoder.layers.{}.self_attention.linear_proj.", "model.layers.{}.self_attn.o_proj."},
    {"decoder.layers.{}.pre_mlp_layernorm.", "model.layers.{}.post_attention_layernorm."},
    {"decoder.layers.{}.mlp.linear_fc1.gate.", "model.layers.{}.mlp.gate_up_proj.", stacked_gate},
    {"decoder.layers.{}.mlp.linear_fc1.up.", "model.layers.{}.mlp.gate_up_proj.", stacked_up},
    {"decoder.layers.{}.mlp.linear_fc2.", "model.layers.{}.mlp.down_proj."},
    {"decoder.final_layernorm.", "model.norm."},
    {"output_layer.", "lm_head."},
};

constexpr Preset kPresets[] = {
    {"phi3-mini-4k", R"({"model_type": "phi3", "vocab_size": 32064, "hidden_size": 3072,
      "intermediate_size": 8192, "num_hidden_layers": 32, "num_attention_heads": 32,
      "num_key_value_heads": 32, "max_position_embeddings": 4096, "sliding_window": 2047})"},
    {"phi3-medium-4k", R"({"model_type": "phi3", "vocab_size": 32064, "hidden_size": 5120,
      "intermediate_size": 17920, "num_hidden_layers": 40, "num_attention_heads": 40,
      "num_key_value_heads": 10, "max_position_embeddings": 4096, "sliding_window": 2047})"},
    {"phi3.5-mini", R"({"model_type": "phi3", "vocab_size": 32064, "hidden_size": 3072,
      "intermediate_size": 8192, "num_hidden_layers": 32, "num_attention_heads": 32,
      "num_key_value_heads": 32, "max_position_embeddings": 131072, "sliding_window": 262144,
      "original_max_position_embeddings": 4096, "rope_scaling": {"type": "longrope",
      "long_factor": [1.0800000429153442, 1.1100000143051147, 1.1399999856948853, 1.340000033378601,
      1.5899999141693115, 1.600000023841858, 1.6200000047683716, 2.620000123977661,
      3.2300000190734863, 3.2300000190734863, 4.789999961853027, 7.400000095367432,
      7.700000286102295, 9.09000015258789, 12.199999809265137, 17.670000076293945,
      24.46000099182129, 28.57000160217285, 30.420001983642578, 30.840002059936523,
      32.590003967285156, 32.93000411987305, 42.320003509521484, 44.96000289916992,
      50.340003967285156, 50.45000457763672, 57.55000305175781, 57.93000411987305,
      58.21000289916992, 60.1400032043457, 62.61000442504883, 62.62000274658203,
      62.71000289916992, 63.1400032043457, 63.1400032043457, 63.77000427246094,
      63.93000411987305, 63.96000289916992, 63.970001220703125, 64.02999877929688,
      64.06999969482422, 64.08000183105469, 64.12000274658203, 64.41000366210938,
      64.4800033569336, 64.51000213623047, 64.52999877929688, 64.83999633789062],
      "short_factor": [1.0, 1.0199999809265137, 1.0299999713897705, 1.0299999713897705, 1.0499999523162842,
      1.0499999523162842, 1.0499999523162842, 1.0499999523162842, 1.0499999523162842,
      1.0699999332427979, 1.0999999046325684, 1.1099998950958252, 1.1599998474121094,
      1.1599998474121094, 1.1699998378753662, 1.2899998426437378, 1.339999794960022,
      1.679999828338623, 1.7899998426437378, 1.8199998140335083, 1.8499997854232788,
      1.8799997568130493, 1.9099997282028198, 1.9399996995925903, 1.9899996519088745,
      2.0199997425079346, 2.0199997425079346, 2.0199997425079346, 2.0199997425079346,
      2.0199997425079346, 2.0199997425079346, 2.0299997329711914, 2.0299997329711914,
      2.0299997329711914, 2.0299997329711914, 2.0299997329711914, 2.0299997329711914,
      2.0299997329711914, 2.0299997329711914, 2.0299997329711914, 2.0799996852874756,
      2.0899996757507324, 2.189999580383301, 2.2199995517730713, 2.5899994373321533,
      2.729999542236328, 2.749999523162842, 2.8399994373321533]}})"},
    {"phi4-14b", R"({"model_type": "phi3", "vocab_size": 100352, "hidden_size": 5120,
      "intermediate_size": 17920, "num_hidden_layers": 40, "num_attention_heads": 40,
      "num_key_value_heads": 10, "max_position_embeddings": 16384, "rope_theta": 250000.0,
      "sliding_window": null})"},
};

KeyRule residual_dropout() {
  KeyRule rule{.keys = {"resid_pdrop", "embd_pdrop"}};
  rule.read = [](const ConfigFile& file, ModelConfig& model) {
    const auto rate = [&](const char* key) {
      return file.find(key) == nullptr ? 0.0 : file.number(key);
    };
    model.hidden_dropout = rate("resid_pdrop");
    if (rate("embd_pdrop") != model.hidden_dropout) {
      file.refuse("embd_pdrop", "the value of 'resid_pdrop': there is one rate for both");
    }
  };
  rule.write = [](const ModelConfig& model, Json& json) {
    json["resid_pdrop"] = model.hidden_dropout;
    json["embd_pdrop"] = model.hidden_dropout;
  };
  return rule;
}

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
    if (model.position_embedding_type != "rope") file.refuse("rope_scaling", "null");
    if (!scaling.empty()) {
      read_longrope(file, ConfigFile(scaling, file.path() + ": rope_scaling"), model);
    }
  };
  rule.write = [write = rule.write](const ModelConfig& model, Json& json) {
    write(model, json);
    if (model.position_embedding_type != "longrope") return;
    json["rope_scaling"] = {{"type", "longrope"},
                            {"short_factor", numbers(model.longrope_short_factor)},
                            {"long_factor", numbers(model.longrope_long_factor)}};
    json["original_max_position_embeddings"] = model.longrope_original_max_position_embeddings;
  };
  return rule;
}

KeyRules keys() {
  return joined(llama_sizes(),
                {phi3_rope(), residual_dropout(), fixed_key("attention_bias", false),
                 window_of_all_layers(/*missing=*/0), tied_embeddings(/*missing=*/false)});
}

std::span<const NameRule> names(const ModelConfig&) { return kNames; }

}  // namespace

const Family& phi3() {
  static const Family kFamily{.name = "phi3",
                              .model_type = "phi3",
                              .architecture = "Phi3ForCausalLM",
                              .base_prefix = "model.",
                              .ignored_tensors = llama_ignored_tensors(),
                              .start = start_llama,
                              .keys = keys,
                              .names = names,
                              .presets = kPresets};
  return kFamily;
}

}  // namespace pentatron::families
