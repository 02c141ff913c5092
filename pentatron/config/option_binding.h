// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <optional>
#include <type_traits>

#include "pentatron/config/option_table.h"

// What the table files are written with: bindings to the fields of RunConfig and the rules on
// values.
namespace pentatron::config {

namespace detail {
template <typename T>
struct IsOptional : std::false_type {};
template <typename T>
struct IsOptional<std::optional<T>> : std::true_type {};

[[nodiscard]] inline double as_double(const OptionValue& value) {
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return static_cast<double>(*integer);
  return std::get<double>(value);
}

constexpr std::string_view part_name(ModelConfig RunConfig::*) { return "model"; }
constexpr std::string_view part_name(ParallelConfig RunConfig::*) { return "parallel"; }
constexpr std::string_view part_name(DataConfig RunConfig::*) { return "data"; }
constexpr std::string_view part_name(OptimizerConfig RunConfig::*) { return "optimizer"; }
constexpr std::string_view part_name(TrainingConfig RunConfig::*) { return "training"; }
constexpr std::string_view part_name(LoggingConfig RunConfig::*) { return "logging"; }
constexpr std::string_view part_name(CheckpointConfig RunConfig::*) { return "checkpoint"; }

template <auto kPart, auto kField>
void set_field(RunConfig& config, const OptionValue& value) {
  auto& field = (config.*kPart).*kField;
  using T = std::remove_reference_t<decltype(field)>;
  if constexpr (IsOptional<T>::value) {
    field = std::holds_alternative<std::monostate>(value) ? T{} : T{as_double(value)};
  } else if constexpr (std::is_same_v<T, double>) {
    field = as_double(value);
  } else if constexpr (std::is_same_v<T, bool>) {
    field = std::get<bool>(value);
  } else if constexpr (std::is_integral_v<T>) {
    field = static_cast<T>(std::get<std::int64_t>(value));
  } else {
    field = std::get<T>(value);
  }
}

template <auto kPart, auto kField>
OptionValue get_field(const RunConfig& config) {
  const auto& field = (config.*kPart).*kField;
  using T = std::remove_cvref_t<decltype(field)>;
  if constexpr (IsOptional<T>::value) {
    return field.has_value() ? OptionValue{*field} : OptionValue{};
  } else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    return static_cast<std::int64_t>(field);
  } else {
    return field;
  }
}
}  // namespace detail

// bind<&RunConfig::model, &ModelConfig::num_layers>()
template <auto kPart, auto kField>
[[nodiscard]] constexpr Binding bind() {
  return {&detail::set_field<kPart, kField>, &detail::get_field<kPart, kField>,
          detail::part_name(kPart)};
}

// Rules on numbers. Not-a-number never gets here: the conversion refuses it.
template <std::int64_t kMin>
std::string_view at_least(const OptionValue& value) {
  static_assert(kMin == 0 || kMin == 1);
  if (detail::as_double(value) >= static_cast<double>(kMin)) return {};
  return kMin == 0 ? "a number of at least 0" : "a number of at least 1";
}
inline std::string_view above_zero(const OptionValue& value) {
  return detail::as_double(value) > 0 ? "" : "a number above 0";
}
// [0, 1): probabilities and decay factors.
inline std::string_view below_one(const OptionValue& value) {
  const double number = detail::as_double(value);
  return number >= 0 && number < 1 ? "" : "a number of at least 0 and below 1";
}
// (0, 1)
inline std::string_view inside_one(const OptionValue& value) {
  const double number = detail::as_double(value);
  return number > 0 && number < 1 ? "" : "a number above 0 and below 1";
}
// [0, 1]
inline std::string_view up_to_one(const OptionValue& value) {
  const double number = detail::as_double(value);
  return number >= 0 && number <= 1 ? "" : "a number from 0 to 1";
}
// (0, 1]
inline std::string_view positive_share(const OptionValue& value) {
  const double number = detail::as_double(value);
  return number > 0 && number <= 1 ? "" : "a number above 0 and up to 1";
}
inline std::string_view not_empty(const OptionValue& value) {
  return std::get<std::string>(value).empty() ? "a text that is not empty" : "";
}

}  // namespace pentatron::config
