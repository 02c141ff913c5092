// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/train_state.h"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "pentatron/base/error.h"
#include "pentatron/config/batch_schedule.h"
#include "pentatron/config/choices.h"
#include "pentatron/config/config_json.h"

namespace pentatron::training {

using Json = nlohmann::json;

namespace {

std::int64_t counter(const Json& json, const char* name) {
  const Json& value = json.at(name);
  PENTATRON_CHECK(value.is_number_integer() && value.get<std::int64_t>() >= 0, kCheckpoint,
                  "the training state of the checkpoint says {} {}, expected a count", name,
                  value.dump());
  return value.get<std::int64_t>();
}

std::int64_t integer(const Json& json, const char* name) {
  const Json& value = json.at(name);
  PENTATRON_CHECK(value.is_number_integer(), kCheckpoint,
                  "the training state of the checkpoint says {} {}, expected an integer", name,
                  value.dump());
  return value.get<std::int64_t>();
}

std::vector<std::int64_t> rising_counts(const Json& json, const char* name) {
  const Json& value = json.at(name);
  const auto is_count = [](const Json& one) {
    return one.is_number_integer() && one.get<std::int64_t>() > 0;
  };
  std::vector<std::int64_t> counts;
  if (value.is_array() && std::ranges::all_of(value, is_count)) {
    counts = value.get<std::vector<std::int64_t>>();
  }
  PENTATRON_CHECK(!counts.empty() && std::ranges::is_sorted(counts), kCheckpoint,
                  "the training state of the checkpoint says {} {}, expected rising counts", name,
                  value.dump());
  return counts;
}

double number(const Json& json, const char* name) {
  const Json& value = json.at(name);
  PENTATRON_CHECK(
      value.is_number() && value.get<double>() >= 0, kCheckpoint,
      "the training state of the checkpoint says {} {}, expected a number of at least 0", name,
      value.dump());
  return value.get<double>();
}

std::optional<double> optional_number(const Json& json, const char* name) {
  if (!json.contains(name)) return std::nullopt;
  return json.at(name).get<double>();
}

// An identity text, which may come from a checkpoint.
Json parse_identity(const std::string& text) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  PENTATRON_CHECK(json.is_object(), kCheckpoint,
                  "the training state of the checkpoint holds no JSON object where the model or "
                  "the schedule is described");
  return json;
}

// The fields that are chosen by name.
std::string fields(const std::string& identity,
                   const std::function<bool(const std::string&)>& chosen) {
  Json json = parse_identity(identity);
  for (auto field = json.begin(); field != json.end();) {
    field = chosen(field.key()) ? std::next(field) : json.erase(field);
  }
  return json.dump();
}

bool is_numerics(const std::string& name) {
  static const Json kFields = Json::parse(config::to_json({}, config::Resume::kNumerics));
  return kFields.contains(name);
}

// Fields that are always there: counts, numbers of at least 0, texts.
struct Count {
  const char* name;
  std::int64_t TrainState::*field;
};
constexpr Count kCounts[] = {
    {"iteration", &TrainState::iteration},
    {"consumed_train_samples", &TrainState::consumed_train_samples},
    {"consumed_valid_samples", &TrainState::consumed_valid_samples},
    {"num_updates", &TrainState::num_updates},
    {"skipped_iterations", &TrainState::skipped_iterations},
    {"nan_iterations", &TrainState::nan_iterations},
    {"scheduler_samples", &TrainState::scheduler_samples},
    {"skipped_train_samples", &TrainState::skipped_train_samples},
};
struct Text {
  const char* name;
  std::string TrainState::*field;
};
constexpr Text kTexts[] = {
    {"data_identity", &TrainState::data_identity},
    {"model", &TrainState::model},
    {"run", &TrainState::run},
    {"schedule", &TrainState::schedule},
    {"tokenizer", &TrainState::tokenizer},
};
// Of later versions: left out where empty.
constexpr Text kLaterTexts[] = {
    {"data_sampled", &TrainState::data_sampled},
    {"data_whole", &TrainState::data_whole},
};

}  // namespace

std::string to_json_text(const TrainState& state) {
  Json json;
  for (const auto& [name, field] : kCounts) json[name] = state.*field;
  json["loss_scale"] = state.loss_scaler.scale;
  json["loss_scale_good_steps"] = state.loss_scaler.good_steps;
  json["loss_scale_hysteresis_left"] = state.loss_scaler.hysteresis_left;
  json["largest_loss"] = state.largest_loss;
  json["largest_grad_norm"] = state.largest_grad_norm;
  for (const auto& [name, field] : kTexts) json[name] = state.*field;
  for (const auto& [name, field] : kLaterTexts) {
    if (!(state.*field).empty()) json[name] = state.*field;
  }
  if (state.train_samples_asked > 0) json["train_samples_asked"] = state.train_samples_asked;
  if (!state.train_samples_before.empty()) {
    json["train_samples_before"] = state.train_samples_before;
  }
  // Written only when true, so that the state hashes of all other runs do not change.
  if (state.finetune) json["finetune"] = true;
  return json.dump();
}

TrainState parse_train_state(const std::string& text) {
  try {
    const Json json = Json::parse(text);
    TrainState state;
    for (const auto& [name, field] : kCounts) state.*field = counter(json, name);
    state.loss_scaler = {.scale = number(json, "loss_scale"),
                         .good_steps = counter(json, "loss_scale_good_steps"),
                         .hysteresis_left = integer(json, "loss_scale_hysteresis_left")};
    state.largest_loss = number(json, "largest_loss");
    state.largest_grad_norm = number(json, "largest_grad_norm");
    for (const auto& [name, field] : kTexts) state.*field = json.at(name).get<std::string>();
    for (const auto& [name, field] : kLaterTexts) state.*field = json.value(name, std::string());
    if (json.contains("train_samples_asked")) {
      state.train_samples_asked = counter(json, "train_samples_asked");
    }
    if (json.contains("train_samples_before")) {
      state.train_samples_before = rising_counts(json, "train_samples_before");
    }
    state.finetune = json.value("finetune", false);
    // An iteration takes samples, and makes an update at most.
    PENTATRON_CHECK(
        state.consumed_train_samples >= state.iteration && state.num_updates <= state.iteration &&
            state.scheduler_samples <= state.consumed_train_samples,
        kCheckpoint,
        "the training state of the checkpoint contradicts itself: {} updates of {} "
        "samples in {} iterations that took {} samples",
        state.num_updates, state.scheduler_samples, state.iteration, state.consumed_train_samples);
    return state;
  } catch (const Json::exception& error) {
    PENTATRON_THROW(kCheckpoint, "the training state of the checkpoint cannot be read: {}",
                    error.what());
  }
}

std::string model_identity(const config::RunConfig& config) {
  Json json = parse_identity(config::to_json(config, config::Resume::kModel));
  json.update(parse_identity(config::to_json(config, config::Resume::kNumerics)));
  // The padding is part of such a model.
  if (config.model.pad_vocab_in_softmax) {
    json["padded_vocab_size"] = config.model.padded_vocab_size;
  }
  return json.dump();
}

std::string run_identity(const config::RunConfig& config) {
  return config::to_json(config, config::Resume::kRun);
}

std::string schedule_identity(const config::RunConfig& config) {
  // Megatron's saved keys, steps in samples.
  const config::BatchSchedule batches = config::asked_batch_schedule(config);
  const auto samples = [&](std::int64_t given, std::int64_t iterations) {
    return given > 0 ? given : batches.samples_after(iterations);
  };
  const config::OptimizerConfig& o = config.optimizer;
  Json json;
  json["optimizer"] = o.optimizer;
  json["max_lr"] = o.lr;
  json["min_lr"] = o.min_lr;
  json["lr_decay_style"] = o.lr_decay_style;
  json["lr_warmup_init"] = o.lr_warmup_init;
  json["lr_warmup_steps"] = samples(o.lr_warmup_samples, o.lr_warmup_iters);
  if (o.lr_warmup_fraction) json["lr_warmup_fraction"] = *o.lr_warmup_fraction;
  json["lr_decay_steps"] = samples(o.lr_decay_samples, o.lr_decay_iters);
  if (config::decay_style(o) == config::DecayStyle::kWsd) {
    json["lr_wsd_decay_style"] = o.lr_wsd_decay_style;
    json["lr_wsd_decay_iters"] = o.lr_wsd_decay_iters;
    json["lr_wsd_decay_samples"] = o.lr_wsd_decay_samples;
  }
  if (o.decoupled_lr) json["decoupled_lr"] = *o.decoupled_lr;
  if (o.decoupled_min_lr) json["decoupled_min_lr"] = *o.decoupled_min_lr;
  json["weight_decay"] = o.weight_decay;
  if (o.weight_decay_incr_style != "constant") {
    json["wd_incr_style"] = o.weight_decay_incr_style;
    json["start_wd"] = o.start_weight_decay.value_or(o.weight_decay);
    json["end_wd"] = o.end_weight_decay.value_or(o.weight_decay);
    json["wd_incr_steps"] = samples(config.training.train_samples, config.training.train_iters);
  }
  json["clip_grad"] = o.clip_grad;
  json["adam_beta1"] = o.adam_beta1;
  json["adam_beta2"] = o.adam_beta2;
  json["adam_eps"] = o.adam_eps;
  json["sgd_momentum"] = o.sgd_momentum;
  const config::OptimizerKind kind = config::optimizer_kind(o);
  if (kind == config::OptimizerKind::kMuon) {
    json["muon_momentum"] = o.muon_momentum;
    json["muon_num_ns_steps"] = o.muon_num_ns_steps;
    json["muon_coefficient_type"] = o.muon_coefficient_type;
    json["muon_scale_mode"] = o.muon_scale_mode;
    json["muon_extra_scale_factor"] = o.muon_extra_scale_factor;
    json["muon_nesterov"] = o.muon_nesterov;
    json["muon_split_qkv"] = o.muon_split_qkv;
  }
  if (kind == config::OptimizerKind::kSoap) {
    json["soap_shampoo_beta"] = o.soap_shampoo_beta;
    json["soap_precondition_frequency"] = o.soap_precondition_frequency;
  }
  // What a state is kept in decides how it goes on.
  if (o.use_precision_aware_optimizer) {
    json["main_grads_dtype"] = o.main_grads_dtype;
    json["main_params_dtype"] = o.main_params_dtype;
    json["exp_avg_dtype"] = o.exp_avg_dtype;
    json["exp_avg_sq_dtype"] = o.exp_avg_sq_dtype;
  }
  json["global_batch_size"] = config.training.global_batch_size;
  if (!batches.is_constant()) {
    json["step_batch_size_schedule"] = config.training.step_batch_size_schedule;
  }
  return json.dump();
}

void apply_schedule(const std::string& saved, config::RunConfig& config) {
  try {
    const Json json = Json::parse(saved);
    config::OptimizerConfig& o = config.optimizer;
    o.lr = json.at("max_lr").get<double>();
    o.min_lr = json.at("min_lr").get<double>();
    o.lr_decay_style = json.at("lr_decay_style").get<std::string>();
    o.lr_warmup_init = json.at("lr_warmup_init").get<double>();
    o.lr_warmup_samples = json.at("lr_warmup_steps").get<std::int64_t>();
    o.lr_warmup_iters = 0;
    o.lr_warmup_fraction = optional_number(json, "lr_warmup_fraction");
    o.lr_decay_samples = json.at("lr_decay_steps").get<std::int64_t>();
    o.lr_wsd_decay_style = json.value("lr_wsd_decay_style", o.lr_wsd_decay_style);
    o.lr_wsd_decay_iters = json.value("lr_wsd_decay_iters", std::int64_t{0});
    o.lr_wsd_decay_samples = json.value("lr_wsd_decay_samples", std::int64_t{0});
    o.decoupled_lr = optional_number(json, "decoupled_lr");
    o.decoupled_min_lr = optional_number(json, "decoupled_min_lr");
    o.weight_decay = json.at("weight_decay").get<double>();
    o.weight_decay_incr_style = json.value("wd_incr_style", std::string("constant"));
    o.start_weight_decay = optional_number(json, "start_wd");
    o.end_weight_decay = optional_number(json, "end_wd");
  } catch (const Json::exception& error) {
    PENTATRON_THROW(kCheckpoint, "the schedule in the checkpoint cannot be read: {}", error.what());
  }
}

std::string without_schedule_keys(const std::string& identity) {
  Json json = parse_identity(identity);
  for (const char* key :
       {"max_lr", "min_lr", "lr_decay_style", "lr_warmup_init", "lr_warmup_steps",
        "lr_warmup_fraction", "lr_decay_steps", "lr_wsd_decay_style", "lr_wsd_decay_iters",
        "lr_wsd_decay_samples", "decoupled_lr", "decoupled_min_lr", "weight_decay", "wd_incr_style",
        "start_wd", "end_wd"}) {
    json.erase(key);
  }
  return json.dump();
}

std::string without_adapter_options(const std::string& identity) {
  return fields(identity, [](const std::string& name) { return !name.starts_with("lora_"); });
}

std::string without_numerics(const std::string& identity) {
  return fields(identity, [](const std::string& name) { return !is_numerics(name); });
}

std::string numerics_alone(const std::string& identity) { return fields(identity, is_numerics); }

std::string with_later_options(const std::string& identity, const std::string& born) {
  Json json = parse_identity(born);
  json.update(parse_identity(identity));
  return json.dump();
}

std::string json_differences(const std::string& saved, const std::string& asked) {
  const Json a = parse_identity(saved);
  const Json b = parse_identity(asked);
  std::set<std::string> keys;
  for (const auto& [key, value] : a.items()) keys.insert(key);
  for (const auto& [key, value] : b.items()) keys.insert(key);
  std::string text;
  for (const std::string& key : keys) {
    const Json in_saved = a.value(key, Json());
    const Json in_asked = b.value(key, Json());
    if (in_saved == in_asked) continue;
    if (!text.empty()) text += "; ";
    text += fmt::format("{} {} in the checkpoint, {} asked", key, in_saved.dump(), in_asked.dump());
  }
  return text;
}

}  // namespace pentatron::training
