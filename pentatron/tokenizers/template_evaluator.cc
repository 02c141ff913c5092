// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/template_evaluator.h"

#include <fmt/format.h>

#include <algorithm>

#include "pentatron/base/error.h"

namespace pentatron::tokenizers::chat {

const Value* Arguments::get(std::size_t place, std::string_view name) const {
  if (place < values.size()) return &values[place];
  for (const auto& [key, value] : keywords) {
    if (key == name) return &value;
  }
  return nullptr;
}

class Evaluator::Level final {
 public:
  explicit Level(Evaluator& evaluator) : evaluator_(evaluator) {
    PENTATRON_CHECK(evaluator.depth_ < evaluator.limits_.depth, kData,
                    "the template nests deeper than {} levels", evaluator.limits_.depth);
    ++evaluator.depth_;
  }
  ~Level() { --evaluator_.depth_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  Evaluator& evaluator_;
};

Evaluator::Evaluator(const Scope& globals, std::string_view name, std::time_t now,
                     const EvaluationLimits& limits)
    : globals_(globals), name_(name), now_(now), limits_(limits), scopes_(1) {
  for (const char* function : {"range", "namespace", "dict", "raise_exception", "strftime_now"}) {
    globals_.emplace(function, Value(std::make_shared<const Function>(Function{function, {}})));
  }
}

std::string Evaluator::run(const Statements& statements) {
  std::string out;
  run_all(statements, out);
  return out;
}

void Evaluator::charge(std::uint64_t work) {
  steps_ += static_cast<std::int64_t>(std::min<std::uint64_t>(work, 1ULL << 40));
  PENTATRON_CHECK(steps_ <= limits_.steps, kData, "the template does too much work ({} steps)",
                  limits_.steps);
}

void Evaluator::charge_value(const Value& value) {
  std::uint64_t bytes = 0;
  if (const std::string* text = value.string()) bytes = text->size();
  if (const List* list = value.list()) bytes = list->items.size() * sizeof(Value);
  if (const Dict* dict = value.dict()) bytes = dict->items.size() * sizeof(dict->items[0]);
  PENTATRON_CHECK(bytes <= limits_.output_bytes, kData, "a value of more than {} bytes",
                  limits_.output_bytes);
  charge(bytes / 16);
}

void Evaluator::write(std::string& out, std::string_view text) {
  charge(text.size() / 16);
  PENTATRON_CHECK(out.size() + text.size() <= limits_.output_bytes, kData,
                  "the template writes more than {} bytes", limits_.output_bytes);
  out += text;
}

Value Evaluator::look_up(const std::string& name) const {
  for (std::size_t i = scopes_.size(); i > first_scope_; --i) {
    if (const auto found = scopes_[i - 1].find(name); found != scopes_[i - 1].end()) {
      return found->second;
    }
  }
  if (const auto found = scopes_[0].find(name); found != scopes_[0].end()) return found->second;
  const auto found = globals_.find(name);
  return found != globals_.end() ? found->second : Value::undefined(name);
}

Evaluator::Flow Evaluator::run_all(const Statements& statements, std::string& out) {
  for (const auto& statement : statements) {
    if (const Flow flow = run_one(*statement, out); flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Evaluator::Flow Evaluator::run_one(const Statement& statement, std::string& out) {
  charge(1);
  const Level level(*this);
  switch (statement.kind) {
    case StatementKind::kText:
      write(out, statement.text);
      break;
    case StatementKind::kPrint:
      write(out, to_text(evaluate(*statement.value)));
      break;
    case StatementKind::kIf:
      return run_all(evaluate(*statement.value).truth() ? statement.body : statement.otherwise,
                     out);
    case StatementKind::kFor:
      return run_loop(statement, out);
    case StatementKind::kSet:
    case StatementKind::kSetBlock:
      assign(statement, out);
      break;
    case StatementKind::kMacro:
      scopes_.back()[statement.macro->name] = Value(Value::Data(statement.macro));
      break;
    case StatementKind::kGroup:
      return run_all(statement.body, out);
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

// What a loop sets is seen in its own round alone.
Evaluator::Flow Evaluator::run_loop(const Statement& loop, std::string& out) {
  std::vector<Value> items = items_of(evaluate(*loop.value));
  charge(items.size());
  if (loop.condition != nullptr) {
    std::vector<Value> chosen;
    for (const Value& item : items) {
      scopes_.emplace_back();
      bind(loop.targets, item, loop.place);
      if (evaluate(*loop.condition).truth()) chosen.push_back(item);
      scopes_.pop_back();
    }
    items = std::move(chosen);
  }
  if (items.empty()) return run_all(loop.otherwise, out);
  const auto length = static_cast<std::int64_t>(items.size());
  for (std::int64_t i = 0; i < length; ++i) {
    const auto at = [&](std::int64_t k, const char* name) {
      return k < 0 || k >= length ? Value::undefined(name) : items[static_cast<std::size_t>(k)];
    };
    Dict state{.items = {{"index", Value::of(i + 1)},
                         {"index0", Value::of(i)},
                         {"revindex", Value::of(length - i)},
                         {"revindex0", Value::of(length - i - 1)},
                         {"first", Value::of(i == 0)},
                         {"last", Value::of(i + 1 == length)},
                         {"length", Value::of(length)},
                         {"depth", Value::of(std::int64_t{1})},
                         {"depth0", Value::of(std::int64_t{0})},
                         {"previtem", at(i - 1, "loop.previtem")},
                         {"nextitem", at(i + 1, "loop.nextitem")}}};
    scopes_.emplace_back();
    scopes_.back()["loop"] = Value::of(std::move(state));
    bind(loop.targets, items[static_cast<std::size_t>(i)], loop.place);
    const Flow flow = run_all(loop.body, out);
    scopes_.pop_back();
    if (flow == Flow::kBreak) break;
  }
  return Flow::kNext;
}

void Evaluator::bind(const std::vector<std::string>& targets, const Value& value, Place place) {
  if (targets.size() == 1) {
    scopes_.back()[targets[0]] = value;
    return;
  }
  const std::vector<Value> parts = items_of(value);
  PENTATRON_CHECK(parts.size() == targets.size(), kData, "{}:{}:{}: {} values for {} names", name_,
                  place.line, place.column, parts.size(), targets.size());
  for (std::size_t i = 0; i < parts.size(); ++i) scopes_.back()[targets[i]] = parts[i];
}

void Evaluator::assign(const Statement& set, std::string&) {
  if (set.kind == StatementKind::kSetBlock) {
    std::string text;
    scopes_.emplace_back();
    run_all(set.body, text);
    scopes_.pop_back();
    scopes_.back()[set.targets[0]] = Value::of(std::move(text));
    return;
  }
  const Value value = evaluate(*set.value);
  if (set.attribute.empty()) return bind(set.targets, value, set.place);
  Namespace* space = look_up(set.targets[0]).name_space();
  PENTATRON_CHECK(space != nullptr, kData, "{}:{}:{}: only a namespace's parts can be set", name_,
                  set.place.line, set.place.column);
  PENTATRON_CHECK(value.name_space() == nullptr, kUnsupported,
                  "{}:{}:{}: a namespace inside another is not supported", name_, set.place.line,
                  set.place.column);
  for (auto& [key, old] : space->items) {
    if (key == set.attribute) {
      old = value;
      return;
    }
  }
  space->items.emplace_back(set.attribute, value);
}

// Places are added where the error passes first.
Value Evaluator::evaluate(const Expression& e) {
  charge(1);
  const Level level(*this);
  try {
    Value value = evaluate_kind(e);
    const bool made = e.kind != ExpressionKind::kConstant && e.kind != ExpressionKind::kName &&
                      e.kind != ExpressionKind::kAttribute && e.kind != ExpressionKind::kSubscript;
    if (made) charge_value(value);
    return value;
  } catch (const Error& error) {
    const std::string_view what = error.what();
    if (what.starts_with(fmt::format("{}:", name_))) throw;
    throw Error(error.kind(),
                fmt::format("{}:{}:{}: {}", name_, e.place.line, e.place.column, what));
  }
}

Value Evaluator::evaluate_kind(const Expression& e) {
  const auto operand = [&](std::size_t i) { return evaluate(*e.operands[i]); };
  const auto optional = [&](std::size_t i) {
    return e.operands[i] == nullptr ? Value() : operand(i);
  };
  switch (e.kind) {
    case ExpressionKind::kConstant:
      return e.value;
    case ExpressionKind::kName:
      return look_up(e.name);
    case ExpressionKind::kList: {
      std::vector<Value> items;
      for (std::size_t i = 0; i < e.operands.size(); ++i) items.push_back(operand(i));
      return Value::of(std::move(items), e.tuple);
    }
    case ExpressionKind::kDict:
      return dict(e);
    case ExpressionKind::kUnary:
      return unary_operation(e.name, operand(0));
    case ExpressionKind::kBinary:
      return binary(e);
    case ExpressionKind::kChoice:
      if (operand(1).truth()) return operand(0);
      return e.operands.size() > 2 ? operand(2) : Value::undefined("the other choice");
    case ExpressionKind::kAttribute:
      return attribute(operand(0), e.name);
    case ExpressionKind::kSubscript: {
      const Value value = operand(0);
      return subscript(value, operand(1));
    }
    case ExpressionKind::kSlice: {
      const Value value = operand(0);
      const Value begin = optional(1);
      const Value end = optional(2);
      return slice(value, begin, end, optional(3));
    }
    case ExpressionKind::kCall:
      return call(e);
    case ExpressionKind::kFilter:
      return apply_filter(e.name, arguments_of(e, 0));
    case ExpressionKind::kTest:
      return Value::of(apply_test(e.name, arguments_of(e, 0)) != e.negated);
  }
  PENTATRON_THROW(kInternal, "an expression of no kind");
}

Value Evaluator::binary(const Expression& e) {
  Value a = evaluate(*e.operands[0]);
  if (e.name == "and") return a.truth() ? evaluate(*e.operands[1]) : a;
  if (e.name == "or") return a.truth() ? a : evaluate(*e.operands[1]);
  const Value b = evaluate(*e.operands[1]);
  // Before the bytes are made.
  if (e.name == "*" && (a.string() != nullptr || b.string() != nullptr)) {
    const Value& text = a.string() != nullptr ? a : b;
    const Value& times = a.string() != nullptr ? b : a;
    if (times.is_integer() && times.integer() > 0) {
      const auto count = static_cast<std::uint64_t>(times.integer());
      PENTATRON_CHECK(
          count <= limits_.output_bytes && count * text.string()->size() <= limits_.output_bytes,
          kData, "a value of more than {} bytes", limits_.output_bytes);
    }
  }
  return binary_operation(e.name, a, b);
}

Value Evaluator::dict(const Expression& e) {
  Dict made;
  for (std::size_t i = 0; i < e.operands.size(); i += 2) {
    const Value key = evaluate(*e.operands[i]);
    PENTATRON_CHECK(key.string() != nullptr, kUnsupported,
                    "a dict with a key of type {} is not supported", key.type_name());
    Value value = evaluate(*e.operands[i + 1]);
    const auto old = std::find_if(made.items.begin(), made.items.end(),
                                  [&](const auto& item) { return item.first == *key.string(); });
    if (old != made.items.end()) {
      old->second = std::move(value);
    } else {
      made.items.emplace_back(*key.string(), std::move(value));
    }
  }
  return Value::of(std::move(made));
}

Arguments Evaluator::arguments_of(const Expression& e, std::size_t first) {
  Arguments arguments;
  for (std::size_t i = first; i < e.operands.size(); ++i) {
    arguments.values.push_back(evaluate(*e.operands[i]));
  }
  for (const auto& [name, value] : e.keywords) {
    arguments.keywords.emplace_back(name, evaluate(*value));
  }
  return arguments;
}

}  // namespace pentatron::tokenizers::chat
