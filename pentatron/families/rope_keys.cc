// SPDX-License-Identifier: Apache-2.0
#include "pentatron/families/rope_keys.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "pentatron/base/error.h"
#include "pentatron/base/format.h"
#include "pentatron/config/choices.h"

namespace pentatron::families {
namespace {

// Llama 3.1's, which ops/rotary.h has as constants.
constexpr double kLowFrequencyFactor = 1.0;
constexpr double kHighFrequencyFactor = 4.0;
constexpr std::int64_t kTrainedPositions = 8192;

void check_parameter_names(const ConfigFile& file, std::set<std::string, std::less<>> allowed) {
  allowed.insert({"rope_type", "type", "rope_theta", "partial_rotary_factor"});
  for (const auto& [key, value] : file.json().items()) {
    if (!allowed.contains(key) && !value.is_null()) {
      PENTATRON_THROW(kUnsupported, "{}: unknown key {}, which may change the model", file.path(),
                      quoted_for_message(key));
    }
  }
}

void expect(const ConfigFile& file, std::string_view key, double value) {
  if (file.number(key) != value) file.refuse(key, fmt::format("{}, the only one here", value));
}

void read_linear(const ConfigFile& file, ModelConfig& model) {
  check_parameter_names(file, {"factor"});
  model.rotary_seq_len_interpolation_factor = file.integer("factor");
}

void read_llama3(const ConfigFile& file, ModelConfig& model) {
  check_parameter_names(
      file, {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"});
  expect(file, "low_freq_factor", kLowFrequencyFactor);
  expect(file, "high_freq_factor", kHighFrequencyFactor);
  expect(file, "original_max_position_embeddings", static_cast<double>(kTrainedPositions));
  model.use_rope_scaling = true;
  model.rope_scaling_factor = file.number("factor");
}

void read_yarn(const ConfigFile& file, ModelConfig& model) {
  check_parameter_names(file, {"factor", "original_max_position_embeddings", "beta_fast",
                               "beta_slow", "mscale", "mscale_all_dim", "truncate"});
  model.position_embedding_type = "yarn";
  model.rotary_scaling_factor = file.number("factor");
  model.yarn_original_max_position_embeddings = file.integer("original_max_position_embeddings");
  if (file.find("beta_fast") != nullptr) model.yarn_beta_fast = file.number("beta_fast");
  if (file.find("beta_slow") != nullptr) model.yarn_beta_slow = file.number("beta_slow");
  // The library uses the two only where both are there and not 0.
  const bool scales = file.find("mscale") != nullptr && file.find("mscale_all_dim") != nullptr &&
                      file.number("mscale") != 0.0 && file.number("mscale_all_dim") != 0.0;
  model.mscale = scales ? file.number("mscale") : 1.0;
  model.mscale_all_dim = scales ? file.number("mscale_all_dim") : 0.0;
  if (file.find("truncate") != nullptr) {
    model.yarn_correction_range_round_to_int = file.flag("truncate");
  }
}

Json yarn_of(const ModelConfig& model) {
  Json scaling = {{"rope_type", "yarn"},
                  {"factor", model.rotary_scaling_factor},
                  {"original_max_position_embeddings", model.yarn_original_max_position_embeddings},
                  {"beta_fast", model.yarn_beta_fast},
                  {"beta_slow", model.yarn_beta_slow},
                  {"truncate", model.yarn_correction_range_round_to_int}};
  if (model.mscale_all_dim != 0.0) {
    scaling["mscale"] = model.mscale;
    scaling["mscale_all_dim"] = model.mscale_all_dim;
  }
  return scaling;
}

void check_share(const ConfigFile& file, const RopeKeys& keys, double share) {
  if (keys.share.empty() && share != 1.0) {
    file.refuse("partial_rotary_factor", "1.0: all channels of a head are rotated");
  }
  if (!(share > 0.0 && share <= 1.0)) file.refuse(keys.share, "a share above 0 and up to 1");
}

// rope_parameters, or rope_scaling of older versions.
Json parameters_of(const ConfigFile& file) {
  Json parameters = Json::object();
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const Json* found = file.find(key);
    if (found == nullptr) continue;
    if (!found->is_object()) file.refuse(key, "an object or null");
    if (!parameters.empty() && *found != parameters) file.refuse(key, "what 'rope_scaling' says");
    parameters = *found;
  }
  return parameters;
}

}  // namespace

double read_rope_theta(const ConfigFile& file, std::string_view key, double missing) {
  const double theta = file.find(key) == nullptr ? missing : file.number(key);
  if (!(theta >= 1.0)) file.refuse(key, "a number of at least 1");
  return theta;
}

void read_rope_parameters(const ConfigFile& file, ModelConfig& model) {
  std::string type = "default";
  for (const char* key : {"type", "rope_type"}) {
    if (file.find(key) != nullptr) type = file.text(key);
  }
  if (type == "default") {
    // A scaling of no kind has no factor.
    check_parameter_names(file, {});
  } else if (type == "linear") {
    read_linear(file, model);
  } else if (type == "llama3") {
    read_llama3(file, model);
  } else if (type == "yarn") {
    read_yarn(file, model);
  } else {
    PENTATRON_THROW(kUnsupported,
                    "{}: the rope_type {} is not supported: default, linear, llama3 and yarn are",
                    file.path(), quoted_for_message(type));
  }
}

Json rope_scaling_of(const ModelConfig& model) {
  if (config::position_kind(model) == config::PositionKind::kYarn) return yarn_of(model);
  if (model.use_rope_scaling) {
    return {{"rope_type", "llama3"},
            {"factor", model.rope_scaling_factor},
            {"low_freq_factor", kLowFrequencyFactor},
            {"high_freq_factor", kHighFrequencyFactor},
            {"original_max_position_embeddings", kTrainedPositions}};
  }
  if (model.rotary_seq_len_interpolation_factor > 1) {
    return {{"rope_type", "linear"},
            {"factor", static_cast<double>(model.rotary_seq_len_interpolation_factor)}};
  }
  return nullptr;
}

KeyRule rope_keys(const RopeKeys& keys) {
  KeyRule rule{.keys = {keys.theta, "rope_scaling", "rope_parameters", "rope_theta",
                        "partial_rotary_factor"}};
  if (!keys.share.empty()) rule.keys.push_back(keys.share);
  rule.read = [keys](const ConfigFile& file, ModelConfig& model) {
    model.position_embedding_type = "rope";
    model.rotary_base = read_rope_theta(file, keys.theta, keys.missing_theta);
    model.rotary_percent = keys.missing_share;
    if (!keys.share.empty() && file.find(keys.share) != nullptr) {
      model.rotary_percent = file.number(keys.share);
    }
    const Json object = parameters_of(file);
    const ConfigFile parameters(object, file.path() + ": rope_parameters");
    if (parameters.find("rope_theta") != nullptr) {
      model.rotary_base = read_rope_theta(parameters, "rope_theta", keys.missing_theta);
    }
    if (parameters.find("partial_rotary_factor") != nullptr) {
      model.rotary_percent = parameters.number("partial_rotary_factor");
    }
    check_share(keys.share.empty() ? parameters : file, keys, model.rotary_percent);
    // Some versions write one fact under two keys.
    const auto same = [&](const char* key, double value) {
      if (file.find(key) != nullptr && file.number(key) != value) {
        file.refuse(key, fmt::format("{}, as another key says", value));
      }
    };
    same("rope_theta", model.rotary_base);
    same("partial_rotary_factor", model.rotary_percent);
    read_rope_parameters(parameters, model);
  };
  rule.write = [keys](const ModelConfig& model, Json& json) {
    json[keys.theta] = model.rotary_base;
    json["rope_scaling"] = rope_scaling_of(model);
    if (!keys.share.empty()) json[keys.share] = model.rotary_percent;
  };
  return rule;
}

}  // namespace pentatron::families
