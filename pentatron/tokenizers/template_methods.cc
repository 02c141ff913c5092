// SPDX-License-Identifier: Apache-2.0
// Methods that templates call on texts, dicts and lists.
#include <unicode/uchar.h>

#include <algorithm>
#include <map>

#include "pentatron/base/error.h"
#include "pentatron/tokenizers/template_evaluator.h"
#include "pentatron/tokenizers/template_text.h"

namespace pentatron::tokenizers::chat {
namespace {

using Method = Value (*)(const Value& self, const Arguments& arguments);
using Methods = std::map<std::string, Method, std::less<>>;

const std::string& text_at(const Arguments& arguments, std::size_t place, const char* name) {
  const Value* value = arguments.get(place, name);
  PENTATRON_CHECK(value != nullptr && value->string() != nullptr, kData,
                  "argument {} ({}) must be a text", place + 1, name);
  return *value->string();
}

std::int64_t integer_at(const Arguments& arguments, std::size_t place, const char* name,
                        std::int64_t otherwise) {
  const Value* value = arguments.get(place, name);
  if (value == nullptr || value->is_none()) return otherwise;
  PENTATRON_CHECK(value->is_integer(), kData, "argument {} ({}) must be an integer", place + 1,
                  name);
  return value->integer();
}

Value texts(std::vector<std::string> parts) {
  std::vector<Value> items;
  for (std::string& part : parts) items.push_back(Value::of(std::move(part)));
  return Value::of(std::move(items));
}

Value stripped_value(const Value& self, const Arguments& arguments, Sides sides) {
  const Value* characters = arguments.get(0, "chars");
  if (characters == nullptr || characters->is_none()) {
    return Value::of(strip(*self.string(), sides));
  }
  return Value::of(strip(*self.string(), sides, text_at(arguments, 0, "chars")));
}

Value split_value(const Value& self, const Arguments& arguments, bool from_right) {
  const Value* separator = arguments.get(0, "sep");
  const std::int64_t most = integer_at(arguments, 1, "maxsplit", -1);
  if (separator == nullptr || separator->is_none()) {
    return texts(split(*self.string(), most, from_right));
  }
  return texts(split(*self.string(), text_at(arguments, 0, "sep"), most, from_right));
}

// One text or a tuple of them.
Value has_end(const Value& self, const Arguments& arguments, bool at_start) {
  PENTATRON_CHECK(arguments.values.size() == 1, kData,
                  "startswith() and endswith() take one text or a tuple of texts");
  const auto fits = [&](const Value& part) {
    PENTATRON_CHECK(part.string() != nullptr, kData, "startswith() and endswith() take texts");
    return at_start ? self.string()->starts_with(*part.string())
                    : self.string()->ends_with(*part.string());
  };
  const List* list = arguments.values[0].list();
  if (list == nullptr) return Value::of(fits(arguments.values[0]));
  return Value::of(std::any_of(list->items.begin(), list->items.end(), fits));
}

// In code points; -1 where it is not.
std::int64_t found_at(const Value& self, const Arguments& arguments, bool last) {
  const std::string& part = text_at(arguments, 0, "sub");
  PENTATRON_CHECK(arguments.values.size() == 1, kUnsupported,
                  "find() with a begin or an end is not supported");
  const std::size_t at = last ? self.string()->rfind(part) : self.string()->find(part);
  if (at == std::string::npos) return -1;
  return num_code_points(std::string_view(*self.string()).substr(0, at));
}

Value index_of(const Value& self, const Arguments& arguments) {
  const std::int64_t at = found_at(self, arguments, false);
  PENTATRON_CHECK(at >= 0, kData, "index(): not in the text");
  return Value::of(at);
}

Value count_of(const Value& self, const Arguments& arguments) {
  const std::string& part = text_at(arguments, 0, "sub");
  if (part.empty()) return Value::of(num_code_points(*self.string()) + 1);
  std::int64_t count = 0;
  for (std::size_t at = self.string()->find(part); at != std::string::npos;
       at = self.string()->find(part, at + part.size())) {
    ++count;
  }
  return Value::of(count);
}

Value joined(const Value& self, const Arguments& arguments) {
  PENTATRON_CHECK(arguments.values.size() == 1, kData, "join() takes one list");
  std::string out;
  const char* separator = "";
  for (const Value& item : items_of(arguments.values[0])) {
    PENTATRON_CHECK(item.string() != nullptr, kData, "join() of a {}", item.type_name());
    out += separator;
    out += *item.string();
    separator = self.string()->c_str();
  }
  return Value::of(std::move(out));
}

Value without(const Value& self, const Arguments& arguments, bool at_start) {
  std::string_view text = *self.string();
  const std::string& part = text_at(arguments, 0, "part");
  if (at_start && text.starts_with(part)) text.remove_prefix(part.size());
  if (!at_start && text.ends_with(part)) text.remove_suffix(part.size());
  return Value::of(std::string(text));
}

// Every character passes, and there is one.
Value all_are(const Value& self, bool (*test)(UChar32)) {
  const std::u32string codes = code_points(*self.string());
  return Value::of(!codes.empty() && std::all_of(codes.begin(), codes.end(), [&](char32_t code) {
    return test(static_cast<UChar32>(code));
  }));
}

const Methods& text_methods() {
  static const Methods kMethods = {
      {"strip",
       [](const Value& s, const Arguments& a) { return stripped_value(s, a, Sides::kBoth); }},
      {"lstrip",
       [](const Value& s, const Arguments& a) { return stripped_value(s, a, Sides::kLeft); }},
      {"rstrip",
       [](const Value& s, const Arguments& a) { return stripped_value(s, a, Sides::kRight); }},
      {"split", [](const Value& s, const Arguments& a) { return split_value(s, a, false); }},
      {"rsplit", [](const Value& s, const Arguments& a) { return split_value(s, a, true); }},
      {"splitlines",
       [](const Value& s, const Arguments& a) {
         const Value* keep = a.get(0, "keepends");
         return texts(split_lines(*s.string(), keep != nullptr && keep->truth()));
       }},
      {"startswith", [](const Value& s, const Arguments& a) { return has_end(s, a, true); }},
      {"endswith", [](const Value& s, const Arguments& a) { return has_end(s, a, false); }},
      {"upper", [](const Value& s, const Arguments&) { return Value::of(upper(*s.string())); }},
      {"lower", [](const Value& s, const Arguments&) { return Value::of(lower(*s.string())); }},
      {"title", [](const Value& s, const Arguments&) { return Value::of(title(*s.string())); }},
      {"capitalize",
       [](const Value& s, const Arguments&) { return Value::of(capitalize(*s.string())); }},
      {"replace",
       [](const Value& s, const Arguments& a) {
         return Value::of(replace(*s.string(), text_at(a, 0, "old"), text_at(a, 1, "new"),
                                  integer_at(a, 2, "count", -1)));
       }},
      {"find", [](const Value& s, const Arguments& a) { return Value::of(found_at(s, a, false)); }},
      {"rfind", [](const Value& s, const Arguments& a) { return Value::of(found_at(s, a, true)); }},
      {"index", &index_of},
      {"count", &count_of},
      {"join", &joined},
      {"removeprefix", [](const Value& s, const Arguments& a) { return without(s, a, true); }},
      {"removesuffix", [](const Value& s, const Arguments& a) { return without(s, a, false); }},
      {"isdigit",
       [](const Value& s, const Arguments&) {
         return all_are(s, [](UChar32 c) { return ::u_isdigit(c) != 0; });
       }},
      {"isalpha",
       [](const Value& s, const Arguments&) {
         return all_are(s, [](UChar32 c) { return ::u_isalpha(c) != 0; });
       }},
      {"isalnum",
       [](const Value& s, const Arguments&) {
         return all_are(s, [](UChar32 c) { return ::u_isalnum(c) != 0; });
       }},
      {"isspace", [](const Value& s, const Arguments&) {
         return Value::of(!s.string()->empty() && strip(*s.string(), Sides::kBoth).empty());
       }}};
  return kMethods;
}

Value pairs(const Value& self, const Arguments&) {
  std::vector<Value> items;
  for (const auto& [key, value] : self.dict()->items) {
    items.push_back(Value::of({Value::of(key), value}, /*tuple=*/true));
  }
  return Value::of(std::move(items));
}

Value values(const Value& self, const Arguments&) {
  std::vector<Value> items;
  for (const auto& item : self.dict()->items) items.push_back(item.second);
  return Value::of(std::move(items));
}

Value item_or(const Value& self, const Arguments& arguments) {
  const Value* key = arguments.get(0, "key");
  PENTATRON_CHECK(key != nullptr, kData, "get() takes a key");
  const Value* item = key->string() == nullptr ? nullptr : self.dict()->find(*key->string());
  if (item != nullptr) return *item;
  const Value* otherwise = arguments.get(1, "default");
  return otherwise == nullptr ? Value() : *otherwise;
}

const Methods& dict_methods() {
  static const Methods kMethods = {
      {"items", &pairs},
      {"keys", [](const Value& s, const Arguments&) { return Value::of(items_of(s)); }},
      {"values", &values},
      {"get", &item_or}};
  return kMethods;
}

Value list_index(const Value& self, const Arguments& arguments) {
  PENTATRON_CHECK(arguments.values.size() == 1, kData, "index() takes one value");
  const std::vector<Value>& items = self.list()->items;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (equal(items[i], arguments.values[0])) return Value::of(static_cast<std::int64_t>(i));
  }
  PENTATRON_THROW(kData, "index(): not in the list");
}

Value list_count(const Value& self, const Arguments& arguments) {
  PENTATRON_CHECK(arguments.values.size() == 1, kData, "count() takes one value");
  const std::vector<Value>& items = self.list()->items;
  return Value::of(
      static_cast<std::int64_t>(std::count_if(items.begin(), items.end(), [&](const Value& item) {
        return equal(item, arguments.values[0]);
      })));
}

const Methods& list_methods() {
  static const Methods kMethods = {{"index", &list_index}, {"count", &list_count}};
  return kMethods;
}

// Null for values without methods.
const Methods* methods_of(const Value& self) {
  if (self.string() != nullptr) return &text_methods();
  if (self.dict() != nullptr) return &dict_methods();
  if (self.list() != nullptr) return &list_methods();
  return nullptr;
}

}  // namespace

bool has_method(const Value& self, std::string_view name) {
  const Methods* methods = methods_of(self);
  return methods != nullptr && methods->contains(name);
}

Value call_method(const Value& self, const std::string& name, const Arguments& arguments) {
  return methods_of(self)->find(name)->second(self, arguments);
}

}  // namespace pentatron::tokenizers::chat
