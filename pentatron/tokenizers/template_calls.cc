// SPDX-License-Identifier: Apache-2.0
// Calls of macros, global functions and methods, and the filters that run tests or filters on
// items.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>

#include "pentatron/base/error.h"
#include "pentatron/tokenizers/template_evaluator.h"

namespace pentatron::tokenizers::chat {
namespace {

constexpr std::int64_t kMaxRange = 100'000;  // as in Jinja's sandbox

Value range(const Arguments& arguments) {
  PENTATRON_CHECK(!arguments.values.empty() && arguments.values.size() <= 3 &&
                      std::all_of(arguments.values.begin(), arguments.values.end(),
                                  [](const Value& value) { return value.is_integer(); }),
                  kData, "range() takes one to three integers");
  const bool one = arguments.values.size() == 1;
  const std::int64_t begin = one ? 0 : arguments.values[0].integer();
  const std::int64_t end = arguments.values[one ? 0 : 1].integer();
  const std::int64_t step = arguments.values.size() == 3 ? arguments.values[2].integer() : 1;
  PENTATRON_CHECK(step != 0, kData, "range() with a step of 0");
  constexpr std::int64_t kFar = 1LL << 61;
  PENTATRON_CHECK(std::abs(begin) < kFar && std::abs(end) < kFar && std::abs(step) < kFar, kData,
                  "range() with numbers that are too large");
  std::vector<Value> items;
  for (std::int64_t i = begin; step > 0 ? i < end : i > end; i += step) {
    PENTATRON_CHECK(static_cast<std::int64_t>(items.size()) < kMaxRange, kData,
                    "range() of more than {} numbers", kMaxRange);
    items.push_back(Value::of(i));
  }
  return Value::of(std::move(items));
}

Value make_namespace(const Arguments& arguments) {
  auto space = std::make_shared<Namespace>();
  for (const Value& value : arguments.values) {
    PENTATRON_CHECK(value.dict() != nullptr, kData,
                    "namespace() takes a dict, or names and values");
    for (const auto& item : value.dict()->items) space->items.push_back(item);
  }
  for (const auto& item : arguments.keywords) {
    PENTATRON_CHECK(item.second.name_space() == nullptr, kUnsupported,
                    "a namespace inside another is not supported");
    space->items.push_back(item);
  }
  return Value(Value::Data(std::move(space)));
}

std::string time_text(std::time_t now, const Arguments& arguments) {
  const Value* format = arguments.get(0, "format");
  PENTATRON_CHECK(format != nullptr && format->string() != nullptr, kData,
                  "strftime_now() takes a format");
  std::tm local = {};
  (void)::localtime_r(&now, &local);
  std::array<char, 512> text = {};
  if (format->string()->empty()) return {};
  const std::size_t size =
      std::strftime(text.data(), text.size(), format->string()->c_str(), &local);
  PENTATRON_CHECK(size > 0, kData, "strftime_now(): the format '{}' gives too long a text",
                  *format->string());
  return {text.data(), size};
}

// A part of an item by its name, a dotted path ("function.name").
Value part_of(const Value& item, const Value& path) {
  if (path.string() == nullptr) return subscript(item, path);
  Value part = item;
  std::string_view rest = *path.string();
  while (true) {
    const std::size_t dot = rest.find('.');
    part = subscript(part, Value::of(std::string(rest.substr(0, dot))));
    if (dot == std::string_view::npos) return part;
    rest.remove_prefix(dot + 1);
  }
}

}  // namespace

Value Evaluator::call(const Expression& e) {
  const Value callee = evaluate(*e.operands[0]);
  const Arguments arguments = arguments_of(e, 1);
  if (const auto* function = callee.get_if<std::shared_ptr<const Function>>()) {
    return call_function(**function, arguments);
  }
  if (const auto* macro = callee.get_if<std::shared_ptr<const Macro>>()) {
    return call_macro(**macro, arguments);
  }
  if (const auto* missing = callee.get_if<Undefined>()) {
    PENTATRON_THROW(kUnsupported, "{}() is not defined, or not supported", missing->name);
  }
  PENTATRON_THROW(kData, "a {} cannot be called", callee.type_name());
}

Value Evaluator::call_function(const Function& function, const Arguments& arguments) {
  if (function.self != nullptr) return call_method(*function.self, function.name, arguments);
  if (function.name == "range") return range(arguments);
  if (function.name == "namespace") return make_namespace(arguments);
  if (function.name == "strftime_now") return Value::of(time_text(now_, arguments));
  if (function.name == "dict") {
    Dict made;
    for (const Value& value : arguments.values) {
      PENTATRON_CHECK(value.dict() != nullptr, kUnsupported, "dict() of a {} is not supported",
                      value.type_name());
      made.items = value.dict()->items;
    }
    for (const auto& item : arguments.keywords) made.items.push_back(item);
    return Value::of(std::move(made));
  }
  const Value* message = arguments.get(0, "message");
  PENTATRON_THROW(kData, "the template refuses: {}",
                  message == nullptr ? std::string() : to_text(*message));
}

Value Evaluator::call_macro(const Macro& macro, const Arguments& arguments) {
  PENTATRON_CHECK(arguments.values.size() <= macro.parameters.size(), kData,
                  "{}() takes {} values, {} were given", macro.name, macro.parameters.size(),
                  arguments.values.size());
  PENTATRON_CHECK(macro_depth_ < limits_.macro_depth, kData,
                  "macros call each other {} levels deep", limits_.macro_depth);
  for (const auto& [name, value] : arguments.keywords) {
    PENTATRON_CHECK(std::any_of(macro.parameters.begin(), macro.parameters.end(),
                                [&, &key = name](const Parameter& p) { return p.name == key; }),
                    kData, "{}() has no parameter '{}'", macro.name, name);
  }
  const std::size_t outer = std::exchange(first_scope_, scopes_.size());
  ++macro_depth_;
  scopes_.emplace_back();
  for (std::size_t i = 0; i < macro.parameters.size(); ++i) {
    const Parameter& parameter = macro.parameters[i];
    const Value* given = arguments.get(i, parameter.name);
    Value value = Value::undefined(parameter.name);
    if (given != nullptr) {
      value = *given;
    } else if (parameter.default_value != nullptr) {
      value = evaluate(*parameter.default_value);
    }
    scopes_.back()[parameter.name] = std::move(value);
  }
  std::string text;
  run_all(macro.body, text);
  scopes_.pop_back();
  --macro_depth_;
  first_scope_ = outer;
  return Value::of(std::move(text));
}

Value Evaluator::apply_filter(const std::string& filter, const Arguments& arguments) {
  if (filter == "map") return map_items(arguments);
  if (filter == "select" || filter == "reject" || filter == "selectattr" ||
      filter == "rejectattr") {
    return filter_items(filter, arguments);
  }
  return plain_filter(filter, arguments);
}

Value Evaluator::map_items(const Arguments& arguments) {
  std::vector<Value> items;
  const Value* path = arguments.get(arguments.values.size(), "attribute");
  const Value* fallback = arguments.get(arguments.values.size(), "default");
  PENTATRON_CHECK(path != nullptr || arguments.values.size() >= 2, kData,
                  "map: expected attribute=... or a filter's name");
  for (const Value& item : items_of(arguments.values.at(0))) {
    charge(1);
    if (path != nullptr) {
      const Value part = part_of(item, *path);
      items.push_back(part.is_undefined() && fallback != nullptr ? *fallback : part);
      continue;
    }
    PENTATRON_CHECK(arguments.values[1].string() != nullptr, kData,
                    "map: a filter's name is a text");
    Arguments inner{.values = {item}, .keywords = arguments.keywords};
    inner.values.insert(inner.values.end(), arguments.values.begin() + 2, arguments.values.end());
    PENTATRON_CHECK(*arguments.values[1].string() != "map", kUnsupported,
                    "map of map is not supported");
    items.push_back(apply_filter(*arguments.values[1].string(), inner));
    charge_value(items.back());
  }
  return Value::of(std::move(items));
}

Value Evaluator::filter_items(const std::string& filter, const Arguments& arguments) {
  const bool by_part = filter.ends_with("attr");
  const bool keeps = filter.starts_with("select");
  const std::size_t test = by_part ? 2 : 1;
  PENTATRON_CHECK(!by_part || arguments.values.size() >= 2, kData, "{}: expected an attribute",
                  filter);
  std::vector<Value> chosen;
  for (const Value& item : items_of(arguments.values.at(0))) {
    charge(1);
    const Value part = by_part ? part_of(item, arguments.values[1]) : item;
    bool passes = part.truth();
    if (arguments.values.size() > test) {
      const std::string* name = arguments.values[test].string();
      PENTATRON_CHECK(name != nullptr, kData, "{}: a test's name is a text", filter);
      Arguments inner{.values = {part}, .keywords = {}};
      inner.values.insert(inner.values.end(),
                          arguments.values.begin() + static_cast<std::ptrdiff_t>(test) + 1,
                          arguments.values.end());
      passes = apply_test(*name, inner);
    }
    if (passes == keeps) chosen.push_back(item);
  }
  return Value::of(std::move(chosen));
}

}  // namespace pentatron::tokenizers::chat
