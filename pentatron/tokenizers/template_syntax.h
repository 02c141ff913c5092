// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "pentatron/tokenizers/template_lexer.h"
#include "pentatron/tokenizers/template_value.h"

// A chat template as the parser gives it to the evaluator.
namespace pentatron::tokenizers::chat {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

enum class ExpressionKind {
  kConstant,   // value
  kName,       // name
  kList,       // operands; `tuple` for a tuple
  kDict,       // operands: key, value, key, value ...
  kUnary,      // name: not, -, +
  kBinary,     // name: and, or, ==, in, not in, +, ~ ...
  kChoice,     // operands: value if condition else other (may be missing)
  kAttribute,  // operands[0].name
  kSubscript,  // operands[0][operands[1]]
  kSlice,      // operands[0][begin : end : step], each may be null
  kCall,       // operands[0](operands[1...], keywords)
  kFilter,     // operands[0] | name(operands[1...], keywords)
  kTest,       // operands[0] is name(operands[1...]); `negated`
};

struct Expression {
  ExpressionKind kind = ExpressionKind::kConstant;
  Place place;
  std::string name = {};
  Value value = {};
  std::vector<ExpressionPtr> operands = {};
  std::vector<std::pair<std::string, ExpressionPtr>> keywords = {};
  bool negated = false;
  bool tuple = false;
  int depth = 1;  // levels of the tree below and with this one
};

struct Statement;
using Statements = std::vector<std::unique_ptr<Statement>>;

struct Parameter {
  std::string name;
  ExpressionPtr default_value;  // null: none
};

// `{% macro name(parameters) %}body`.
struct Macro {
  std::string name;
  std::vector<Parameter> parameters;
  Statements body;
};

enum class StatementKind {
  kText,      // text
  kPrint,     // value
  kIf,        // value, body, otherwise
  kFor,       // targets in value if condition, body, otherwise
  kSet,       // targets (or name.attribute) = value
  kSetBlock,  // targets[0] = what body writes
  kMacro,     // macro
  kGroup,     // body: `{% generation %}`
  kBreak,
  kContinue,
};

struct Statement {
  StatementKind kind = StatementKind::kText;
  Place place;
  std::string text = {};
  ExpressionPtr value = {};
  ExpressionPtr condition = {};
  std::vector<std::string> targets = {};
  std::string attribute = {};
  Statements body = {};
  Statements otherwise = {};
  std::shared_ptr<const Macro> macro = {};
};

}  // namespace pentatron::tokenizers::chat
