// SPDX-License-Identifier: Apache-2.0
// Operators, subscripts and tests, as Python and Jinja have them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "pentatron/base/error.h"
#include "pentatron/tokenizers/template_evaluator.h"

namespace pentatron::tokenizers::chat {
namespace {

[[noreturn]] void no_operation(std::string_view name, const Value& a, const Value& b) {
  const auto shown = [](const Value& value) {
    const Undefined* missing = value.get_if<Undefined>();
    return missing != nullptr ? fmt::format("'{}', which is not defined", missing->name)
                              : std::string(value.type_name());
  };
  PENTATRON_THROW(kData, "'{}' of {} and {}", name, shown(a), shown(b));
}

void check_size(bool overflow) { PENTATRON_CHECK(!overflow, kData, "an integer beyond 64 bits"); }

std::int64_t floor_divided(std::int64_t a, std::int64_t b) {
  PENTATRON_CHECK(b != 0, kData, "division by zero");
  check_size(a == INT64_MIN && b == -1);
  return a / b - (a % b != 0 && (a % b < 0) != (b < 0) ? 1 : 0);
}

Value integer_operation(std::string_view name, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  if (name == "+" || name == "-" || name == "*") {
    check_size(name == "+"   ? __builtin_add_overflow(a, b, &result)
               : name == "-" ? __builtin_sub_overflow(a, b, &result)
                             : __builtin_mul_overflow(a, b, &result));
    return Value::of(result);
  }
  if (name == "//") return Value::of(floor_divided(a, b));
  if (name == "%") return Value::of(a - floor_divided(a, b) * b);
  if (name == "/") {
    PENTATRON_CHECK(b != 0, kData, "division by zero");
    return Value::of(static_cast<double>(a) / static_cast<double>(b));
  }
  if (b < 0) return Value::of(std::pow(static_cast<double>(a), static_cast<double>(b)));
  result = 1;
  for (std::int64_t i = 0; i < b && result != 0 && !(result == 1 && a == 1); ++i) {
    check_size(__builtin_mul_overflow(result, a, &result));
    PENTATRON_CHECK(i < 1'000'000, kData, "a power of {}", b);
  }
  return Value::of(result);
}

Value real_operation(std::string_view name, double a, double b) {
  if (name == "+") return Value::of(a + b);
  if (name == "-") return Value::of(a - b);
  if (name == "*") return Value::of(a * b);
  if (name == "**") return Value::of(std::pow(a, b));
  PENTATRON_CHECK(b != 0, kData, "division by zero");
  if (name == "/") return Value::of(a / b);
  if (name == "//") return Value::of(std::floor(a / b));
  return Value::of(a - std::floor(a / b) * b);
}

std::string repeated(const std::string& text, std::int64_t times) {
  std::string out;
  for (std::int64_t i = 0; i < times; ++i) out += text;
  return out;
}

// Python's index: negative ones count from the end. False where nothing stands there.
bool in_range(std::int64_t& at, std::int64_t length) {
  if (at < 0) at += length;
  return at >= 0 && at < length;
}

}  // namespace

Value unary_operation(std::string_view name, const Value& value) {
  if (name == "not") return Value::of(!value.truth());
  PENTATRON_CHECK(value.is_number(), kData, "'{}' of {}", name, value.type_name());
  if (!value.is_integer()) return Value::of(name == "-" ? -value.number() : value.number());
  if (name == "+") return Value::of(value.integer());
  return integer_operation("-", 0, value.integer());
}

bool less(const Value& a, const Value& b) {
  if (a.is_integer() && b.is_integer()) return a.integer() < b.integer();
  if (a.is_number() && b.is_number()) return a.number() < b.number();
  if (a.string() != nullptr && b.string() != nullptr) return *a.string() < *b.string();
  if (a.list() != nullptr && b.list() != nullptr) {
    const auto& x = a.list()->items;
    const auto& y = b.list()->items;
    for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (!equal(x[i], y[i])) return less(x[i], y[i]);
    }
    return x.size() < y.size();
  }
  no_operation("<", a, b);
}

bool contains(const Value& container, const Value& item) {
  if (const std::string* text = container.string()) {
    PENTATRON_CHECK(item.string() != nullptr, kData, "'in' of {} and str", item.type_name());
    return text->find(*item.string()) != std::string::npos;
  }
  if (const Dict* dict = container.dict()) {
    return item.string() != nullptr && dict->find(*item.string()) != nullptr;
  }
  PENTATRON_CHECK(container.list() != nullptr || container.is_undefined(), kData,
                  "'in' of {} and {}", item.type_name(), container.type_name());
  const std::vector<Value> items = items_of(container);
  return std::any_of(items.begin(), items.end(),
                     [&](const Value& value) { return equal(value, item); });
}

Value binary_operation(std::string_view name, const Value& a, const Value& b) {
  if (name == "==") return Value::of(equal(a, b));
  if (name == "!=") return Value::of(!equal(a, b));
  if (name == "in") return Value::of(contains(b, a));
  if (name == "not in") return Value::of(!contains(b, a));
  if (name == "~") return Value::of(to_text(a) + to_text(b));
  if (name == "<") return Value::of(less(a, b));
  if (name == ">") return Value::of(less(b, a));
  if (name == "<=") return Value::of(!less(b, a));
  if (name == ">=") return Value::of(!less(a, b));
  if (a.is_integer() && b.is_integer()) return integer_operation(name, a.integer(), b.integer());
  if (a.is_number() && b.is_number()) return real_operation(name, a.number(), b.number());
  if (name == "+" && a.string() != nullptr && b.string() != nullptr) {
    return Value::of(*a.string() + *b.string());
  }
  if (name == "+" && a.list() != nullptr && b.list() != nullptr &&
      a.list()->tuple == b.list()->tuple) {
    std::vector<Value> items = a.list()->items;
    items.insert(items.end(), b.list()->items.begin(), b.list()->items.end());
    return Value::of(std::move(items), a.list()->tuple);
  }
  if (name == "*" && a.string() != nullptr && b.is_integer()) {
    return Value::of(repeated(*a.string(), b.integer()));
  }
  if (name == "*" && b.string() != nullptr && a.is_integer()) {
    return Value::of(repeated(*b.string(), a.integer()));
  }
  PENTATRON_CHECK(name != "%" || a.string() == nullptr, kUnsupported,
                  "'%' of a text is not supported");
  no_operation(name, a, b);
}

Value attribute(const Value& value, const std::string& name) {
  if (const Undefined* missing = value.get_if<Undefined>()) {
    PENTATRON_THROW(kData, "'{}' is not defined, so it has no '{}'", missing->name, name);
  }
  if (const Namespace* space = value.name_space()) {
    for (const auto& [key, part] : space->items) {
      if (key == name) return part;
    }
    return Value::undefined(name);
  }
  // Methods first, as in Jinja: messages.items is the method even where a key has the name.
  if (has_method(value, name)) {
    return Value(
        std::make_shared<const Function>(Function{name, std::make_shared<const Value>(value)}));
  }
  if (const Dict* dict = value.dict()) {
    if (const Value* item = dict->find(name)) return *item;
  }
  return Value::undefined(name);
}

Value subscript(const Value& value, const Value& key) {
  if (const Undefined* missing = value.get_if<Undefined>()) {
    PENTATRON_THROW(kData, "'{}' is not defined, so it has no [{}]", missing->name, to_repr(key));
  }
  if (key.string() != nullptr) {
    // An item first, then what the name is an attribute of.
    if (const Dict* dict = value.dict()) {
      if (const Value* item = dict->find(*key.string())) return *item;
    }
    return attribute(value, *key.string());
  }
  if (!key.is_integer()) return Value::undefined(to_text(key));
  std::int64_t at = key.integer();
  if (const List* list = value.list()) {
    if (in_range(at, static_cast<std::int64_t>(list->items.size()))) {
      return list->items[static_cast<std::size_t>(at)];
    }
  } else if (const std::string* text = value.string()) {
    const std::u32string codes = code_points(*text);
    if (in_range(at, static_cast<std::int64_t>(codes.size()))) {
      std::string one;
      append_utf8(one, codes[static_cast<std::size_t>(at)]);
      return Value::of(std::move(one));
    }
  }
  return Value::undefined(fmt::format("[{}]", key.integer()));
}

Value slice(const Value& value, const Value& begin, const Value& end, const Value& step) {
  const auto number = [](const Value& part, std::int64_t otherwise) {
    PENTATRON_CHECK(part.is_none() || part.is_integer(), kData, "a slice of {}", part.type_name());
    return part.is_none() ? otherwise : part.integer();
  };
  PENTATRON_CHECK(value.string() != nullptr || value.list() != nullptr || value.is_undefined(),
                  kData, "a slice of {}", value.type_name());
  const std::vector<Value> items = items_of(value);
  const auto length = static_cast<std::int64_t>(items.size());
  const std::int64_t by = number(step, 1);
  PENTATRON_CHECK(by != 0, kData, "a slice with a step of 0");
  // Python clamps both ends into the sequence, one before it for a negative step.
  const std::int64_t low = by > 0 ? 0 : -1;
  const std::int64_t high = by > 0 ? length : length - 1;
  const auto clamped = [&](const Value& part, std::int64_t otherwise) {
    std::int64_t at = number(part, otherwise);
    if (!part.is_none() && at < 0) at += length;
    return std::clamp(at, low, high);
  };
  const std::int64_t from = clamped(begin, by > 0 ? 0 : length - 1);
  const std::int64_t to = end.is_none() ? (by > 0 ? length : -1) : clamped(end, 0);
  std::vector<Value> chosen;
  for (std::int64_t i = from; by > 0 ? i < to : i > to; i += by) {
    chosen.push_back(items[static_cast<std::size_t>(i)]);
    if (by > length || by < -length) break;
  }
  if (value.string() == nullptr) return Value::of(std::move(chosen));
  std::string text;
  for (const Value& item : chosen) text += *item.string();
  return Value::of(std::move(text));
}

std::vector<Value> items_of(const Value& value) {
  if (const List* list = value.list()) return list->items;
  std::vector<Value> items;
  if (const Dict* dict = value.dict()) {
    for (const auto& [key, item] : dict->items) items.push_back(Value::of(key));
    return items;
  }
  if (const std::string* text = value.string()) {
    for (const char32_t code : code_points(*text)) {
      std::string one;
      append_utf8(one, code);
      items.push_back(Value::of(std::move(one)));
    }
    return items;
  }
  PENTATRON_CHECK(value.is_undefined(), kData, "a {} has no items to go through",
                  value.type_name());
  return items;
}

std::int64_t length_of(const Value& value) {
  if (const std::string* text = value.string()) return num_code_points(*text);
  if (const List* list = value.list()) return static_cast<std::int64_t>(list->items.size());
  if (const Dict* dict = value.dict()) return static_cast<std::int64_t>(dict->items.size());
  PENTATRON_CHECK(value.is_undefined(), kData, "a {} has no length", value.type_name());
  return 0;
}

namespace {

using Test = bool (*)(const Arguments&);
const Value& tested(const Arguments& a) { return a.values.at(0); }
const Value& second(const Arguments& a) {
  PENTATRON_CHECK(a.values.size() == 2, kData, "the test needs one value to compare with");
  return a.values[1];
}
bool is_true(const Value& value, bool wanted) {
  const bool* flag = value.get_if<bool>();
  return flag != nullptr && *flag == wanted;
}
bool is_callable(const Value& value) {
  return value.get_if<std::shared_ptr<const Function>>() != nullptr ||
         value.get_if<std::shared_ptr<const Macro>>() != nullptr;
}
std::int64_t remainder(const Value& value, const Value& by) {
  PENTATRON_CHECK(value.is_integer() && by.is_integer(), kData, "the test needs integers");
  return integer_operation("%", value.integer(), by.integer()).integer();
}

const std::map<std::string, Test, std::less<>>& tests() {
  static const std::map<std::string, Test, std::less<>> kTests = {
      {"defined", [](const Arguments& a) { return !tested(a).is_undefined(); }},
      {"undefined", [](const Arguments& a) { return tested(a).is_undefined(); }},
      {"none", [](const Arguments& a) { return tested(a).is_none(); }},
      {"string", [](const Arguments& a) { return tested(a).string() != nullptr; }},
      {"mapping", [](const Arguments& a) { return tested(a).dict() != nullptr; }},
      {"number", [](const Arguments& a) { return tested(a).is_number(); }},
      {"integer", [](const Arguments& a) { return tested(a).get_if<std::int64_t>() != nullptr; }},
      {"float", [](const Arguments& a) { return tested(a).get_if<double>() != nullptr; }},
      {"boolean", [](const Arguments& a) { return tested(a).get_if<bool>() != nullptr; }},
      {"true", [](const Arguments& a) { return is_true(tested(a), true); }},
      {"false", [](const Arguments& a) { return is_true(tested(a), false); }},
      {"iterable",
       [](const Arguments& a) {
         const Value& value = tested(a);
         return value.string() != nullptr || value.list() != nullptr || value.dict() != nullptr ||
                value.is_undefined();
       }},
      {"sequence",
       [](const Arguments& a) {
         const Value& value = tested(a);
         return value.string() != nullptr || value.list() != nullptr || value.dict() != nullptr ||
                value.is_undefined();
       }},
      {"callable", [](const Arguments& a) { return is_callable(tested(a)); }},
      {"odd",
       [](const Arguments& a) { return remainder(tested(a), Value::of(std::int64_t{2})) == 1; }},
      {"even",
       [](const Arguments& a) { return remainder(tested(a), Value::of(std::int64_t{2})) == 0; }},
      {"divisibleby", [](const Arguments& a) { return remainder(tested(a), second(a)) == 0; }},
      {"in", [](const Arguments& a) { return contains(second(a), tested(a)); }},
      {"eq", [](const Arguments& a) { return equal(tested(a), second(a)); }},
      {"equalto", [](const Arguments& a) { return equal(tested(a), second(a)); }},
      {"ne", [](const Arguments& a) { return !equal(tested(a), second(a)); }},
      {"lt", [](const Arguments& a) { return less(tested(a), second(a)); }},
      {"gt", [](const Arguments& a) { return less(second(a), tested(a)); }},
      {"le", [](const Arguments& a) { return !less(second(a), tested(a)); }},
      {"ge", [](const Arguments& a) { return !less(tested(a), second(a)); }}};
  return kTests;
}

}  // namespace

bool apply_test(const std::string& name, const Arguments& arguments) {
  static const std::map<std::string, std::string, std::less<>> kSigns = {
      {"==", "eq"}, {"!=", "ne"}, {"<", "lt"}, {">", "gt"}, {"<=", "le"}, {">=", "ge"}};
  const auto sign = kSigns.find(name);
  const auto found = tests().find(sign == kSigns.end() ? name : sign->second);
  PENTATRON_CHECK(found != tests().end(), kUnsupported, "the test '{}' is not supported", name);
  return found->second(arguments);
}

}  // namespace pentatron::tokenizers::chat
