// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/option_table.h"

#include <cmath>

#include "pentatron/base/format.h"
#include "pentatron/config/known_options.h"

namespace pentatron::config {

std::vector<const OptionSpec*> all_options() {
  std::vector<const OptionSpec*> rows;
  rows.reserve(1000);
  const auto append = [&rows](std::span<const OptionSpec> table) {
    for (const OptionSpec& spec : table) rows.push_back(&spec);
  };
  append(run_options());
  append(model_options());
  append(latent_options());
  append(rotary_options());
  append(mup_options());
  append(fp8_options());
  append(adapter_options());
  append(parallel_options());
  append(pipeline_options());
  append(data_options());
  append(optimizer_options());
  append(training_options());
  append(logging_options());
  append(checkpoint_options());
  append(always_so_options());
  append(known_options());
  return rows;
}

std::vector<std::string_view> split_words(std::string_view text, char separator) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    const std::size_t end = text.find(separator);
    if (end != 0) words.push_back(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return words;
}

std::string_view to_string(OptionClass option_class) {
  switch (option_class) {
    case OptionClass::kWorks:
      return "works";
    case OptionClass::kAlwaysSo:
      return "always so";
    case OptionClass::kSynonym:
      return "synonym";
    case OptionClass::kNoEffect:
      return "no effect";
    case OptionClass::kPlanned:
      return "planned";
    case OptionClass::kNever:
      return "never";
  }
  return "never";
}

std::string_view to_string(Topic topic) {
  constexpr std::string_view kNames[kNumTopics] = {
      "run",        "model",   "parallel", "precision", "data", "optimizer", "training",
      "checkpoint", "logging", "moe",      "inference", "rl",   "legacy"};
  return kNames[static_cast<int>(topic)];
}

bool is_accepted(OptionClass option_class) {
  return option_class != OptionClass::kPlanned && option_class != OptionClass::kNever;
}

bool is_switch(OptionKind kind) {
  return kind == OptionKind::kSwitchOn || kind == OptionKind::kSwitchOff ||
         kind == OptionKind::kSwitchPair;
}

OptionValue current_value(const OptionSpec& spec, const RunConfig& config) {
  if (spec.shown != nullptr) return spec.shown(config);
  OptionValue value = spec.field.get(config);
  if (spec.default_repr == "None" && value == spec.field.get(RunConfig{})) return {};
  // A float whose default Megatron writes as an integer shows it so.
  if (spec.kind == OptionKind::kFloat && std::holds_alternative<double>(value)) {
    const double number = std::get<double>(value);
    if (std::abs(number) < 1e15 && spec.default_repr == std::to_string(std::llround(number)) &&
        number == std::round(number)) {
      return static_cast<std::int64_t>(std::llround(number));
    }
  }
  // Fields of type double that Megatron parses as an integer show no fraction.
  if (spec.kind == OptionKind::kInt && std::holds_alternative<double>(value)) {
    return static_cast<std::int64_t>(std::get<double>(value));
  }
  return value;
}

std::string python_text(const OptionValue& value, bool quote_strings) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "True" : "False";
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return python_repr(*integer);
  if (const auto* number = std::get_if<double>(&value)) return python_repr(*number);
  if (const auto* text = std::get_if<std::string>(&value)) {
    return quote_strings ? python_repr(std::string_view(*text)) : *text;
  }
  if (const auto* list = std::get_if<std::vector<std::string>>(&value)) {
    std::string text = "[";
    for (const std::string& item : *list) {
      if (text.size() > 1) text += ", ";
      text += python_repr(std::string_view(item));
    }
    return text + "]";
  }
  return "None";
}

}  // namespace pentatron::config
