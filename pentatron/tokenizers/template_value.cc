// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/template_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "pentatron/base/error.h"

namespace pentatron::tokenizers::chat {
namespace {

int depth_of(const Value& value) {
  if (const List* list = value.list()) return list->depth;
  if (const Dict* dict = value.dict()) return dict->depth;
  return 0;
}

int depth_above(int depth, const Value& item) {
  PENTATRON_CHECK(item.name_space() == nullptr, kUnsupported,
                  "a namespace inside a list, a dict or another namespace is not supported");
  const int above = std::max(depth, depth_of(item) + 1);
  PENTATRON_CHECK(above <= Value::kMaxDepth, kData, "a value is nested deeper than {} levels",
                  Value::kMaxDepth);
  return above;
}

}  // namespace

const Value* Dict::find(std::string_view key) const {
  for (const auto& [name, value] : items) {
    if (name == key) return &value;
  }
  return nullptr;
}

Value Value::of(std::string value) {
  return Value(Data(std::make_shared<const std::string>(std::move(value))));
}

Value Value::of(std::vector<Value> items, bool tuple) {
  int depth = 1;
  for (const Value& item : items) depth = depth_above(depth, item);
  return Value(Data(std::make_shared<const List>(List{std::move(items), tuple, depth})));
}

Value Value::of(Dict dict) {
  dict.depth = 1;
  for (const auto& [key, item] : dict.items) dict.depth = depth_above(dict.depth, item);
  return Value(Data(std::make_shared<const Dict>(std::move(dict))));
}

Value Value::of_json(const nlohmann::ordered_json& json) {
  switch (json.type()) {
    case nlohmann::ordered_json::value_t::boolean:
      return of(json.get<bool>());
    case nlohmann::ordered_json::value_t::number_integer:
      return of(json.get<std::int64_t>());
    case nlohmann::ordered_json::value_t::number_unsigned: {
      const auto value = json.get<std::uint64_t>();
      if (value > INT64_MAX) return of(static_cast<double>(value));
      return of(static_cast<std::int64_t>(value));
    }
    case nlohmann::ordered_json::value_t::number_float:
      return of(json.get<double>());
    case nlohmann::ordered_json::value_t::string:
      return of(json.get<std::string>());
    case nlohmann::ordered_json::value_t::array: {
      std::vector<Value> items;
      for (const auto& item : json) items.push_back(of_json(item));
      return of(std::move(items));
    }
    case nlohmann::ordered_json::value_t::object: {
      Dict dict;
      for (const auto& [key, item] : json.items()) dict.items.emplace_back(key, of_json(item));
      return of(std::move(dict));
    }
    default:
      return {};
  }
}

const std::string* Value::string() const {
  const auto* value = get_if<std::shared_ptr<const std::string>>();
  return value == nullptr ? nullptr : value->get();
}

const List* Value::list() const {
  const auto* value = get_if<std::shared_ptr<const List>>();
  return value == nullptr ? nullptr : value->get();
}

const Dict* Value::dict() const {
  const auto* value = get_if<std::shared_ptr<const Dict>>();
  return value == nullptr ? nullptr : value->get();
}

Namespace* Value::name_space() const {
  const auto* value = get_if<std::shared_ptr<Namespace>>();
  return value == nullptr ? nullptr : value->get();
}

bool Value::is_integer() const {
  return get_if<std::int64_t>() != nullptr || get_if<bool>() != nullptr;
}

bool Value::is_number() const { return is_integer() || get_if<double>() != nullptr; }

std::int64_t Value::integer() const {
  if (const bool* flag = get_if<bool>()) return *flag ? 1 : 0;
  return std::get<std::int64_t>(data_);
}

double Value::number() const {
  if (const double* value = get_if<double>()) return *value;
  return static_cast<double>(integer());
}

bool Value::truth() const {
  if (is_undefined() || is_none()) return false;
  if (is_number()) return number() != 0;
  if (const std::string* text = string()) return !text->empty();
  if (const List* items = list()) return !items->items.empty();
  if (const Dict* items = dict()) return !items->items.empty();
  return true;
}

std::string_view Value::type_name() const {
  static constexpr std::string_view kNames[] = {"undefined", "None",     "bool", "int",
                                                "float",     "str",      "list", "dict",
                                                "namespace", "function", "macro"};
  return kNames[data_.index()];
}

bool equal(const Value& a, const Value& b) {
  if (a.is_integer() && b.is_integer()) return a.integer() == b.integer();
  if (a.is_number() && b.is_number()) return a.number() == b.number();
  if (a.string() != nullptr && b.string() != nullptr) return *a.string() == *b.string();
  if (a.list() != nullptr && b.list() != nullptr) {
    return a.list()->tuple == b.list()->tuple &&
           std::equal(a.list()->items.begin(), a.list()->items.end(), b.list()->items.begin(),
                      b.list()->items.end(), equal);
  }
  if (a.dict() != nullptr && b.dict() != nullptr) {
    const auto& items = a.dict()->items;
    return items.size() == b.dict()->items.size() &&
           std::all_of(items.begin(), items.end(), [&](const auto& item) {
             const Value* other = b.dict()->find(item.first);
             return other != nullptr && equal(item.second, *other);
           });
  }
  if (a.name_space() != nullptr) return a.name_space() == b.name_space();
  return (a.is_none() && b.is_none()) || (a.is_undefined() && b.is_undefined());
}

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  // Python turns to exponents below 1e-4 and from 1e16 on.
  const double size = std::abs(value);
  if (size != 0 && (size < 1e-4 || size >= 1e16)) {
    std::string text = fmt::format("{:e}", value);
    const std::string shortest = fmt::format("{}", value);
    return shortest.find('e') != std::string::npos ? shortest : text;
  }
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string to_text(const Value& value) {
  if (value.is_undefined()) return {};
  if (const std::string* text = value.string()) return *text;
  return to_repr(value);
}

}  // namespace pentatron::tokenizers::chat
