// SPDX-License-Identifier: Apache-2.0
// Filters that look at nothing but their arguments.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "pentatron/base/error.h"
#include "pentatron/tokenizers/template_evaluator.h"
#include "pentatron/tokenizers/template_text.h"
#include "pentatron/tokenizers/white_space.h"

namespace pentatron::tokenizers::chat {
namespace {

using Filter = Value (*)(const Arguments&);

const Value& filtered(const Arguments& arguments) { return arguments.values.at(0); }
std::string text_of(const Arguments& arguments) { return to_text(filtered(arguments)); }

bool flag(const Arguments& arguments, std::size_t place, const char* name, bool otherwise) {
  const Value* value = arguments.get(place, name);
  return value == nullptr ? otherwise : value->truth();
}

Value defaulted(const Arguments& arguments) {
  const Value* otherwise = arguments.get(1, "default_value");
  const bool falsy_too = flag(arguments, 2, "boolean", false);
  const Value& value = filtered(arguments);
  if (!value.is_undefined() && (!falsy_too || value.truth())) return value;
  return otherwise == nullptr ? Value::of(std::string()) : *otherwise;
}

Value json(const Arguments& arguments) {
  JsonStyle style;
  // Names and places as in the filter of model libraries.
  if (const Value* value = arguments.get(1, "ensure_ascii")) style.ensure_ascii = value->truth();
  const Value* indent = arguments.get(2, "indent");
  if (indent != nullptr && !indent->is_none()) {
    PENTATRON_CHECK(indent->is_integer() && indent->integer() >= 0 && indent->integer() <= 32,
                    kData, "tojson: indent must be an integer from 0 to 32");
    style.indent = static_cast<int>(indent->integer());
  }
  const Value* separators = arguments.get(3, "separators");
  if (separators != nullptr && !separators->is_none()) {
    const std::vector<Value> pair = items_of(*separators);
    PENTATRON_CHECK(pair.size() == 2 && pair[0].string() != nullptr && pair[1].string() != nullptr,
                    kData, "tojson: separators are two texts");
    style.item_separator = *pair[0].string();
    style.key_separator = *pair[1].string();
  } else if (style.indent >= 0) {
    style.item_separator = ",";
  }
  style.sort_keys = flag(arguments, 4, "sort_keys", false);
  return Value::of(to_json(filtered(arguments), style));
}

Value joined(const Arguments& arguments) {
  const Value* separator = arguments.get(1, "d");
  const Value* path = arguments.get(2, "attribute");
  const std::string between = separator == nullptr ? "" : to_text(*separator);
  std::string out;
  bool first = true;
  for (const Value& item : items_of(filtered(arguments))) {
    if (!std::exchange(first, false)) out += between;
    out += to_text(path == nullptr ? item : subscript(item, *path));
  }
  return Value::of(std::move(out));
}

Value reversed(const Arguments& arguments) {
  if (const std::string* text = filtered(arguments).string()) {
    std::u32string codes = code_points(*text);
    std::string out;
    for (auto code = codes.rbegin(); code != codes.rend(); ++code) append_utf8(out, *code);
    return Value::of(std::move(out));
  }
  std::vector<Value> items = items_of(filtered(arguments));
  std::reverse(items.begin(), items.end());
  return Value::of(std::move(items));
}

Value pairs(const Arguments& arguments) {
  if (filtered(arguments).is_undefined()) return Value::of(std::vector<Value>{});
  PENTATRON_CHECK(filtered(arguments).dict() != nullptr, kData, "items: expected a dict, got {}",
                  filtered(arguments).type_name());
  return call_method(filtered(arguments), "items", {});
}

// What sort, min and max compare: texts without regard to case unless asked for.
Value sort_key(const Value& item, const Value* path, bool case_sensitive) {
  const Value part = path == nullptr ? item : subscript(item, *path);
  return part.string() != nullptr && !case_sensitive ? Value::of(lower(*part.string())) : part;
}

Value sorted(const Arguments& arguments) {
  const bool reverse = flag(arguments, 1, "reverse", false);
  const bool case_sensitive = flag(arguments, 2, "case_sensitive", false);
  const Value* path = arguments.get(3, "attribute");
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : items_of(filtered(arguments))) {
    keyed.emplace_back(sort_key(item, path, case_sensitive), item);
  }
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return reverse ? less(b.first, a.first) : less(a.first, b.first);
  });
  std::vector<Value> items;
  for (auto& [key, item] : keyed) items.push_back(std::move(item));
  return Value::of(std::move(items));
}

Value sorted_pairs(const Arguments& arguments) {
  const bool case_sensitive = flag(arguments, 1, "case_sensitive", false);
  const Value* by = arguments.get(2, "by");
  const bool by_value = by != nullptr && to_text(*by) == "value";
  const bool reverse = flag(arguments, 3, "reverse", false);
  std::vector<Value> items = items_of(pairs(arguments));
  std::stable_sort(items.begin(), items.end(), [&](const Value& a, const Value& b) {
    const std::size_t part = by_value ? 1 : 0;
    const Value x = sort_key(a.list()->items[part], nullptr, case_sensitive);
    const Value y = sort_key(b.list()->items[part], nullptr, case_sensitive);
    return reverse ? less(y, x) : less(x, y);
  });
  return Value::of(std::move(items));
}

Value extreme(const Arguments& arguments, bool largest) {
  const std::vector<Value> items = items_of(filtered(arguments));
  if (items.empty()) return Value::undefined("an item of an empty list");
  const Value* best = &items[0];
  for (const Value& item : items) {
    const Value a = sort_key(item, nullptr, false);
    const Value b = sort_key(*best, nullptr, false);
    if (largest ? less(b, a) : less(a, b)) best = &item;
  }
  return *best;
}

Value summed(const Arguments& arguments) {
  const Value* path = arguments.get(1, "attribute");
  Value sum = Value::of(std::int64_t{0});
  for (const Value& item : items_of(filtered(arguments))) {
    sum = binary_operation("+", sum, path == nullptr ? item : subscript(item, *path));
  }
  return sum;
}

Value unique(const Arguments& arguments) {
  std::vector<Value> items;
  std::vector<Value> keys;
  for (const Value& item : items_of(filtered(arguments))) {
    const Value key = sort_key(item, nullptr, false);
    if (std::any_of(keys.begin(), keys.end(), [&](const Value& old) { return equal(old, key); })) {
      continue;
    }
    PENTATRON_CHECK(keys.size() < 4096, kData, "unique: more than 4096 different items");
    keys.push_back(key);
    items.push_back(item);
  }
  return Value::of(std::move(items));
}

Value indented(const Arguments& arguments) {
  const Value* width = arguments.get(1, "width");
  PENTATRON_CHECK(
      width == nullptr || (width->is_integer() && width->integer() >= 0 && width->integer() <= 256),
      kData, "indent: the width must be an integer from 0 to 256");
  const std::string space(static_cast<std::size_t>(width == nullptr ? 4 : width->integer()), ' ');
  const bool first = flag(arguments, 2, "first", false);
  const bool blank = flag(arguments, 3, "blank", false);
  std::string out;
  bool begin = true;
  for (const std::string& line : split_lines(text_of(arguments) + "\n", false)) {
    if (!begin) out += '\n';
    if (begin ? first : (blank || !line.empty())) out += space;
    out += line;
    begin = false;
  }
  return Value::of(std::move(out));
}

Value to_integer(const Arguments& arguments) {
  const Value* otherwise = arguments.get(1, "default");
  const Value& value = filtered(arguments);
  const Value fallback = otherwise == nullptr ? Value::of(std::int64_t{0}) : *otherwise;
  if (value.is_integer()) return Value::of(value.integer());
  double number = 0;
  if (value.is_number()) {
    number = value.number();
  } else if (value.string() != nullptr) {
    const std::string text = strip(*value.string(), Sides::kBoth);
    std::int64_t whole = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), whole);
    if (error == std::errc() && end == text.data() + text.size()) return Value::of(whole);
    const auto [at, wrong] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (wrong != std::errc() || at != text.data() + text.size()) return fallback;
  } else {
    return fallback;
  }
  constexpr double kLimit = 9e18;
  if (!(std::abs(number) < kLimit)) return fallback;
  return Value::of(static_cast<std::int64_t>(number));
}

Value to_float(const Arguments& arguments) {
  const Value* otherwise = arguments.get(1, "default");
  const Value& value = filtered(arguments);
  if (value.is_number()) return Value::of(value.number());
  if (value.string() != nullptr) {
    const std::string text = strip(*value.string(), Sides::kBoth);
    double number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error == std::errc() && end == text.data() + text.size()) return Value::of(number);
  }
  return otherwise == nullptr ? Value::of(0.0) : *otherwise;
}

Value end_item(const Arguments& arguments, bool last) {
  const std::vector<Value> items = items_of(filtered(arguments));
  if (items.empty()) return Value::undefined("an item of an empty list");
  return last ? items.back() : items.front();
}

Value replaced(const Arguments& arguments) {
  const Value* from = arguments.get(1, "old");
  const Value* to = arguments.get(2, "new");
  const Value* most = arguments.get(3, "count");
  PENTATRON_CHECK(from != nullptr && to != nullptr, kData, "replace: expected two texts");
  PENTATRON_CHECK(most == nullptr || most->is_integer() || most->is_none(), kData,
                  "replace: count must be an integer");
  return Value::of(replace(text_of(arguments), to_text(*from), to_text(*to),
                           most == nullptr || most->is_none() ? -1 : most->integer()));
}

Value trimmed(const Arguments& arguments) {
  const Value* characters = arguments.get(1, "chars");
  if (characters == nullptr || characters->is_none()) {
    return Value::of(strip(text_of(arguments), Sides::kBoth));
  }
  return Value::of(strip(text_of(arguments), Sides::kBoth, to_text(*characters)));
}

// Words as Jinja's filter cuts them, other than str.title(): at white space, hyphens and opening
// brackets.
Value titled(const Arguments& arguments) {
  const std::string text = text_of(arguments);
  std::string out;
  std::string word;
  const auto end_word = [&] {
    const std::u32string codes = code_points(word);
    std::string first;
    if (!codes.empty()) append_utf8(first, codes[0]);
    out += upper(first) + lower(std::string_view(word).substr(first.size()));
    word.clear();
  };
  for (std::size_t at = 0; at < text.size(); ++at) {
    const std::size_t space = white_space_at(text, at);
    const bool cuts =
        space > 0 || std::string_view("-({[<").find(text[at]) != std::string_view::npos;
    if (!cuts) {
      word += text[at];
      continue;
    }
    end_word();
    const std::size_t size = std::max<std::size_t>(space, 1);
    out.append(text, at, size);
    at += size - 1;
  }
  end_word();
  return Value::of(std::move(out));
}

Value absolute(const Arguments& arguments) {
  const Value& value = filtered(arguments);
  PENTATRON_CHECK(value.is_number(), kData, "abs of {}", value.type_name());
  return value.number() < 0 ? unary_operation("-", value) : value;
}

using Filters = std::map<std::string, Filter, std::less<>>;
const Filters& filters() {
  static const Filters kFilters = {
      {"default", &defaulted},
      {"d", &defaulted},
      {"tojson", &json},
      {"join", &joined},
      {"reverse", &reversed},
      {"items", &pairs},
      {"sort", &sorted},
      {"dictsort", &sorted_pairs},
      {"sum", &summed},
      {"unique", &unique},
      {"indent", &indented},
      {"int", &to_integer},
      {"float", &to_float},
      {"replace", &replaced},
      {"trim", &trimmed},
      {"abs", &absolute},
      {"min", [](const Arguments& a) { return extreme(a, false); }},
      {"max", [](const Arguments& a) { return extreme(a, true); }},
      {"first", [](const Arguments& a) { return end_item(a, false); }},
      {"last", [](const Arguments& a) { return end_item(a, true); }},
      {"length", [](const Arguments& a) { return Value::of(length_of(filtered(a))); }},
      {"count", [](const Arguments& a) { return Value::of(length_of(filtered(a))); }},
      {"list", [](const Arguments& a) { return Value::of(items_of(filtered(a))); }},
      {"string", [](const Arguments& a) { return Value::of(text_of(a)); }},
      {"safe", [](const Arguments& a) { return Value::of(text_of(a)); }},
      {"upper", [](const Arguments& a) { return Value::of(upper(text_of(a))); }},
      {"lower", [](const Arguments& a) { return Value::of(lower(text_of(a))); }},
      {"title", &titled},
      {"capitalize", [](const Arguments& a) { return Value::of(capitalize(text_of(a))); }}};
  return kFilters;
}

}  // namespace

Value plain_filter(const std::string& name, const Arguments& arguments) {
  const auto found = filters().find(name);
  PENTATRON_CHECK(found != filters().end(), kUnsupported, "the filter '{}' is not supported", name);
  return found->second(arguments);
}

}  // namespace pentatron::tokenizers::chat
