// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/config_json.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "pentatron/base/error.h"
#include "pentatron/base/format.h"
#include "pentatron/base/json.h"
#include "pentatron/config/option_table.h"

namespace pentatron::config {
namespace {

using nlohmann::json;

json to_node(const OptionValue& value) {
  return std::visit(
      [](const auto& held) {
        if constexpr (std::is_same_v<std::decay_t<decltype(held)>, std::monostate>) {
          return json(nullptr);
        } else {
          return json(held);
        }
      },
      value);
}

// The node as a value of the same kind as `model`, or of a field that may be unset; none: unfit.
std::optional<OptionValue> from_node(const json& node, const OptionValue& model) {
  if (std::holds_alternative<bool>(model)) {
    return node.is_boolean() ? std::optional<OptionValue>(node.get<bool>()) : std::nullopt;
  }
  if (std::holds_alternative<std::int64_t>(model)) {
    constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    if (!node.is_number_integer()) return std::nullopt;
    if (node.is_number_unsigned() && node.get<std::uint64_t>() > kMax) return std::nullopt;
    return node.get<std::int64_t>();
  }
  if (std::holds_alternative<std::string>(model)) {
    return node.is_string() ? std::optional<OptionValue>(node.get<std::string>()) : std::nullopt;
  }
  if (std::holds_alternative<std::vector<std::string>>(model)) {
    if (!node.is_array()) return std::nullopt;
    std::vector<std::string> list;
    for (const json& item : node) {
      if (!item.is_string()) return std::nullopt;
      list.push_back(item.get<std::string>());
    }
    return list;
  }
  // A number; where nothing is the default, it may be unset.
  if (std::holds_alternative<std::monostate>(model) && node.is_null()) return OptionValue{};
  return node.is_number() ? std::optional<OptionValue>(node.get<double>()) : std::nullopt;
}

void read_field(const ConfigField& field, const json& node, RunConfig& config,
                std::string_view label) {
  const OptionValue born = field.binding.get(config);
  const std::optional<OptionValue> value = from_node(node, born);
  const auto unfit = [&](std::string_view expected) {
    PENTATRON_THROW(kData, "{}: {}.{} has an unfit value {}{}{}", label, field.part, field.name,
                    quoted_for_message(node.dump()), expected.empty() ? "" : "; expected ",
                    expected);
  };
  if (!value) unfit("");
  // What was never set may hold what nobody could ask for. The rules of lists are for their items.
  const bool is_list = std::holds_alternative<std::vector<std::string>>(born);
  if (*value != born && !is_list && field.check != nullptr) {
    if (const std::string_view expected = field.check(*value); !expected.empty()) unfit(expected);
  }
  field.binding.set(config, *value);
}

}  // namespace

std::string to_json(const RunConfig& config, int indent) {
  json root = json::object();
  for (const ConfigField& field : config_fields()) {
    root[field.part][field.name] = to_node(field.binding.get(config));
  }
  return dump_json(root, indent);
}

std::string to_json(const RunConfig& config, Resume resume) {
  json root = json::object();
  for (const ConfigField& field : config_fields()) {
    if (field.resume == resume) root[field.name] = to_node(field.binding.get(config));
  }
  return dump_json(root);
}

RunConfig from_json(std::string_view text, std::string_view label) {
  json root = parse_json(text, label);
  PENTATRON_CHECK(root.is_object(), kData, "{}: expected an object of configurations", label);
  RunConfig config;
  std::set<std::string_view> parts;
  for (const ConfigField& field : config_fields()) {
    parts.insert(field.part);
    const auto object = root.find(field.part);
    if (object == root.end()) continue;
    PENTATRON_CHECK(object->is_object(), kData, "{}: {} is not an object", label, field.part);
    const auto node = object->find(field.name);
    if (node == object->end()) continue;
    read_field(field, *node, config, label);
    object->erase(node);
  }
  for (const auto& [part, object] : root.items()) {
    PENTATRON_CHECK(parts.contains(part), kData, "{}: unknown part {}", label,
                    quoted_for_message(part));
    PENTATRON_CHECK(object.empty(), kData,
                    "{}: unknown field {} of {}; is it from a newer version?", label,
                    quoted_for_message(object.begin().key()), part);
  }
  return config;
}

}  // namespace pentatron::config
