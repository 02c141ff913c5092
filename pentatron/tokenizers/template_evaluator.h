// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ctime>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "pentatron/tokenizers/template_syntax.h"
#include "pentatron/tokenizers/template_value.h"

namespace pentatron::tokenizers::chat {

// What a template may use up, so that a hostile one ends: kData beyond.
struct EvaluationLimits {
  std::int64_t steps = 20'000'000;           // expressions and statements, and bytes / 16 they make
  std::uint64_t output_bytes = 64ULL << 20;  // of the text, and of any value
  int macro_depth = 40;
  int depth = 1500;  // of nested expressions and statements that run, through macros too
};

// Arguments of a call, a filter or a test.
struct Arguments {
  std::vector<Value> values;  // a filter's first is what it filters
  std::vector<std::pair<std::string, Value>> keywords;

  // The argument at a place or of a name; null when it is not there.
  [[nodiscard]] const Value* get(std::size_t place, std::string_view name) const;
};

// Names and what they stand for, the innermost last.
using Scope = std::map<std::string, Value, std::less<>>;

// Runs a parsed template once.
class Evaluator final {
 public:
  Evaluator(const Scope& globals, std::string_view name, std::time_t now,
            const EvaluationLimits& limits);

  // The text. Errors name `name`:line:column of the expression: kData, or kUnsupported for filters,
  // tests, methods and functions that are not known.
  [[nodiscard]] std::string run(const Statements& statements);

 private:
  enum class Flow { kNext, kBreak, kContinue };
  class Level;  // one more level of nesting while it lives

  Flow run_all(const Statements& statements, std::string& out);
  Flow run_one(const Statement& statement, std::string& out);
  Flow run_loop(const Statement& loop, std::string& out);
  void assign(const Statement& set, std::string& out);
  void bind(const std::vector<std::string>& targets, const Value& value, Place place);
  void write(std::string& out, std::string_view text);

  [[nodiscard]] Value evaluate(const Expression& e);
  [[nodiscard]] Value evaluate_kind(const Expression& e);
  [[nodiscard]] Value binary(const Expression& e);
  [[nodiscard]] Value dict(const Expression& e);
  [[nodiscard]] Value call(const Expression& e);
  [[nodiscard]] Value call_function(const Function& function, const Arguments& arguments);
  [[nodiscard]] Value call_macro(const Macro& macro, const Arguments& arguments);
  [[nodiscard]] Value apply_filter(const std::string& filter, const Arguments& arguments);
  [[nodiscard]] Value filter_items(const std::string& filter, const Arguments& arguments);
  [[nodiscard]] Value map_items(const Arguments& arguments);
  [[nodiscard]] Arguments arguments_of(const Expression& e, std::size_t first);
  [[nodiscard]] Value look_up(const std::string& name) const;

  void charge(std::uint64_t work);
  void charge_value(const Value& value);

  Scope globals_;
  std::string_view name_;
  std::time_t now_;
  EvaluationLimits limits_;
  std::vector<Scope> scopes_;
  std::size_t first_scope_ = 0;  // of the macro that runs: it sees the global ones and its own
  std::int64_t steps_ = 0;
  int macro_depth_ = 0;
  int depth_ = 0;
};

// Parts of the evaluator that need no scope. Errors have no place; the evaluator adds it.
[[nodiscard]] Value unary_operation(std::string_view name, const Value& value);
[[nodiscard]] Value binary_operation(std::string_view name, const Value& a, const Value& b);
// value.name, or value[key]: items of dicts, methods (a Function), parts of namespaces; undefined
// where there is none.
[[nodiscard]] Value attribute(const Value& value, const std::string& name);
[[nodiscard]] Value subscript(const Value& value, const Value& key);
[[nodiscard]] Value slice(const Value& value, const Value& begin, const Value& end,
                          const Value& step);
// What a loop goes through: items, characters, keys.
[[nodiscard]] std::vector<Value> items_of(const Value& value);
[[nodiscard]] std::int64_t length_of(const Value& value);
[[nodiscard]] bool contains(const Value& container, const Value& item);
[[nodiscard]] bool less(const Value& a, const Value& b);
// `value is name(...)`.
[[nodiscard]] bool apply_test(const std::string& name, const Arguments& arguments);
// Filters of a value alone (template_filters.cc); the others are the evaluator's.
[[nodiscard]] Value plain_filter(const std::string& name, const Arguments& arguments);
// Methods of strings, dicts and lists (template_methods.cc).
[[nodiscard]] Value call_method(const Value& self, const std::string& name,
                                const Arguments& arguments);
[[nodiscard]] bool has_method(const Value& self, std::string_view name);

}  // namespace pentatron::tokenizers::chat
