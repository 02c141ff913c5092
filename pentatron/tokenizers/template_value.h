// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

// Values of a chat template's language (Jinja, that is Python's): immutable but for namespaces.
namespace pentatron::tokenizers::chat {

class Value;
struct Macro;

struct Undefined {
  std::string name;  // of what is not there, for messages
};
struct None {};

struct List {
  std::vector<Value> items;
  bool tuple = false;  // differs in print alone
  int depth = 1;       // levels of nesting
};

// Keys in the order in which they came.
struct Dict {
  std::vector<std::pair<std::string, Value>> items;
  int depth = 1;

  [[nodiscard]] const Value* find(std::string_view key) const;
};

// `namespace(...)`: the only thing that a template may change.
struct Namespace {
  std::vector<std::pair<std::string, Value>> items;
};

// A function that is called by name: a global, or a method with the value it belongs to.
struct Function {
  std::string name;
  std::shared_ptr<const Value> self;  // null: a global
};

class Value {
 public:
  using Data = std::variant<Undefined, None, bool, std::int64_t, double,
                            std::shared_ptr<const std::string>, std::shared_ptr<const List>,
                            std::shared_ptr<const Dict>, std::shared_ptr<Namespace>,
                            std::shared_ptr<const Function>, std::shared_ptr<const Macro>>;

  Value() : data_(None{}) {}
  explicit Value(Data data) : data_(std::move(data)) {}
  [[nodiscard]] static Value of(bool value) { return Value(Data(value)); }
  [[nodiscard]] static Value of(std::int64_t value) { return Value(Data(value)); }
  [[nodiscard]] static Value of(double value) { return Value(Data(value)); }
  [[nodiscard]] static Value of(std::string value);
  // Deeper than kMaxDepth: kData; so is a namespace among the items, which could hold itself.
  [[nodiscard]] static Value of(std::vector<Value> items, bool tuple = false);
  [[nodiscard]] static Value of(Dict dict);
  [[nodiscard]] static Value undefined(std::string name) {
    return Value(Undefined{std::move(name)});
  }
  // Of JSON, the order of keys kept.
  [[nodiscard]] static Value of_json(const nlohmann::ordered_json& json);

  static constexpr int kMaxDepth = 200;

  template <typename T>
  [[nodiscard]] const T* get_if() const {
    return std::get_if<T>(&data_);
  }
  [[nodiscard]] bool is_undefined() const { return get_if<Undefined>() != nullptr; }
  [[nodiscard]] bool is_none() const { return get_if<None>() != nullptr; }
  // Null for other types. A bool is an integer too, as in Python, only where it says so.
  [[nodiscard]] const std::string* string() const;
  [[nodiscard]] const List* list() const;
  [[nodiscard]] const Dict* dict() const;
  [[nodiscard]] Namespace* name_space() const;

  [[nodiscard]] bool is_number() const;   // bools too
  [[nodiscard]] double number() const;    // of is_number()
  [[nodiscard]] bool is_integer() const;  // bools too
  [[nodiscard]] std::int64_t integer() const;

  [[nodiscard]] bool truth() const;
  // Python's name of the type.
  [[nodiscard]] std::string_view type_name() const;

 private:
  Data data_;
};

[[nodiscard]] bool equal(const Value& a, const Value& b);

// Python's str() and repr().
[[nodiscard]] std::string to_text(const Value& value);
[[nodiscard]] std::string to_repr(const Value& value);

struct JsonStyle {
  int indent = -1;  // < 0: one line
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
// Python's json.dumps(). A value that JSON has not: kData.
[[nodiscard]] std::string to_json(const Value& value, const JsonStyle& style);

// Shortest digits that read back, as Python writes a float.
[[nodiscard]] std::string float_text(double value);

// Code points of valid UTF-8, and back.
[[nodiscard]] std::u32string code_points(std::string_view text);
void append_utf8(std::string& out, char32_t code);
[[nodiscard]] std::int64_t num_code_points(std::string_view text);

}  // namespace pentatron::tokenizers::chat
