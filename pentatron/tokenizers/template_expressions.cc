// SPDX-License-Identifier: Apache-2.0
// Expressions of chat templates, by Jinja's precedence: choice, or, and, not, comparison, + -, ~,
// * / // %, **, sign, then attributes, subscripts, calls, filters and tests.
#include <algorithm>
#include <array>
#include <charconv>

#include "pentatron/tokenizers/template_parser.h"
#include "pentatron/tokenizers/template_tokens.h"

namespace pentatron::tokenizers::chat {
namespace {

class Parser final {
 public:
  explicit Parser(Tokens& tokens) : t_(tokens) {}

  ExpressionPtr tuple() {
    const Place place = t_.now().place;
    ExpressionPtr first = choice();
    if (!t_.is_operator(",")) return first;
    ExpressionPtr list = make(ExpressionKind::kList, place);
    list->tuple = true;
    adopt(*list, std::move(first));
    while (t_.take_operator(",")) {
      if (ends_tuple()) break;
      adopt(*list, choice());
    }
    return list;
  }

  ExpressionPtr choice() {
    const Tokens::Level level(t_, kMaxSyntaxDepth);
    ExpressionPtr value = either();
    while (t_.is_word("if")) {
      ExpressionPtr chosen = make(ExpressionKind::kChoice, t_.take().place);
      adopt(*chosen, std::move(value));
      adopt(*chosen, either());
      if (t_.take_word("else")) adopt(*chosen, choice());
      value = std::move(chosen);
    }
    return value;
  }

  ExpressionPtr either() {
    return left_to_right({"or"}, [this] { return both(); });
  }

 private:
  static ExpressionPtr make(ExpressionKind kind, Place place, std::string name = {}) {
    return std::make_unique<Expression>(
        Expression{.kind = kind, .place = place, .name = std::move(name)});
  }

  void deepen(Expression& parent, const Expression* child) {
    if (child == nullptr) return;
    parent.depth = std::max(parent.depth, child->depth + 1);
    if (parent.depth > kMaxExpressionDepth) t_.fail("an expression that is too long");
  }
  void adopt(Expression& parent, ExpressionPtr child) {
    deepen(parent, child.get());
    parent.operands.push_back(std::move(child));
  }

  [[nodiscard]] bool ends_tuple() const {
    return t_.is(TokenKind::kPrintEnd) || t_.is(TokenKind::kBlockEnd) || t_.is_operator(")") ||
           t_.is_operator("=") || t_.is_operator("]");
  }

  // A run of operators of one precedence; `names` may be words.
  template <typename Operand>
  ExpressionPtr left_to_right(std::initializer_list<std::string_view> names, Operand&& operand) {
    ExpressionPtr left = operand();
    while (t_.is(TokenKind::kOperator) || t_.is(TokenKind::kName)) {
      if (std::find(names.begin(), names.end(), t_.now().text) == names.end()) break;
      ExpressionPtr node = make(ExpressionKind::kBinary, t_.now().place, t_.now().text);
      t_.take();
      adopt(*node, std::move(left));
      adopt(*node, operand());
      left = std::move(node);
    }
    return left;
  }

  ExpressionPtr both() {
    return left_to_right({"and"}, [this] { return negation(); });
  }

  ExpressionPtr negation() {
    if (!t_.is_word("not")) return comparison();
    const Tokens::Level level(t_, kMaxSyntaxDepth);
    ExpressionPtr node = make(ExpressionKind::kUnary, t_.take().place, "not");
    adopt(*node, negation());
    return node;
  }

  // a < b < c means a < b and b < c.
  ExpressionPtr comparison() {
    ExpressionPtr left = sum();
    int links = 0;
    while (true) {
      std::string name = t_.now().text;
      const bool not_in =
          t_.is_word("not") && t_.next().kind == TokenKind::kName && t_.next().text == "in";
      constexpr std::array<std::string_view, 6> kSigns{"==", "!=", "<", "<=", ">", ">="};
      const bool sign = t_.is(TokenKind::kOperator) &&
                        std::find(kSigns.begin(), kSigns.end(), name) != kSigns.end();
      if (!sign && !not_in && !t_.is_word("in")) return left;
      const Place place = t_.take().place;
      if (not_in) {
        t_.take();
        name = "not in";
      }
      if (++links > 1) t_.refuse(place, "a comparison of more than two values at once");
      ExpressionPtr node = make(ExpressionKind::kBinary, place, name);
      adopt(*node, std::move(left));
      adopt(*node, sum());
      left = std::move(node);
    }
  }

  ExpressionPtr sum() {
    return left_to_right({"+", "-"}, [this] { return concatenation(); });
  }
  ExpressionPtr concatenation() {
    return left_to_right({"~"}, [this] { return product(); });
  }
  ExpressionPtr product() {
    return left_to_right({"*", "/", "//", "%"}, [this] { return power(); });
  }
  ExpressionPtr power() {
    return left_to_right({"**"}, [this] { return signed_value(true); });
  }

  ExpressionPtr signed_value(bool with_filters) {
    ExpressionPtr node;
    if (t_.is_operator("-") || t_.is_operator("+")) {
      const Tokens::Level level(t_, kMaxSyntaxDepth);
      const std::string name = t_.now().text;
      node = make(ExpressionKind::kUnary, t_.take().place, name);
      adopt(*node, signed_value(false));
    } else {
      node = primary();
    }
    node = postfix(std::move(node));
    return with_filters ? filters(std::move(node)) : std::move(node);
  }

  ExpressionPtr primary() {
    const Token& token = t_.now();
    switch (token.kind) {
      case TokenKind::kName:
        return name();
      case TokenKind::kString:
        return string();
      case TokenKind::kInteger:
      case TokenKind::kFloat:
        return number();
      case TokenKind::kOperator:
        if (token.text == "(") return parenthesis();
        if (token.text == "[") return list();
        if (token.text == "{") return dict();
        [[fallthrough]];
      default:
        t_.fail("expected a value, got " + t_.shown());
    }
  }

  ExpressionPtr constant(Place place, Value value) {
    ExpressionPtr node = make(ExpressionKind::kConstant, place);
    node->value = std::move(value);
    return node;
  }

  ExpressionPtr name() {
    const Token token = t_.take();
    const std::string& text = token.text;
    if (text == "true" || text == "True") return constant(token.place, Value::of(true));
    if (text == "false" || text == "False") return constant(token.place, Value::of(false));
    if (text == "none" || text == "None") return constant(token.place, Value());
    return make(ExpressionKind::kName, token.place, text);
  }

  ExpressionPtr string() {
    const Place place = t_.now().place;
    std::string text;
    while (t_.is(TokenKind::kString)) text += t_.take().text;
    return constant(place, Value::of(std::move(text)));
  }

  ExpressionPtr number() {
    const Token token = t_.now();
    const char* const end = token.text.data() + token.text.size();
    Value value;
    if (token.kind == TokenKind::kInteger) {
      std::int64_t whole = 0;
      const auto [at, error] = std::from_chars(token.text.data(), end, whole);
      if (error != std::errc() || at != end) t_.fail("an integer beyond 64 bits");
      value = Value::of(whole);
    } else {
      double real = 0;
      const auto [at, error] = std::from_chars(token.text.data(), end, real);
      if (error != std::errc() || at != end) t_.fail("a number beyond a double");
      value = Value::of(real);
    }
    t_.take();
    return constant(token.place, std::move(value));
  }

  ExpressionPtr parenthesis() {
    const Place place = t_.take().place;
    if (t_.take_operator(")")) {
      ExpressionPtr empty = make(ExpressionKind::kList, place);
      empty->tuple = true;
      return empty;
    }
    ExpressionPtr inner = tuple();
    t_.expect_operator(")");
    return inner;
  }

  ExpressionPtr list() {
    ExpressionPtr node = make(ExpressionKind::kList, t_.take().place);
    while (!t_.take_operator("]")) {
      adopt(*node, choice());
      if (!t_.is_operator("]")) t_.expect_operator(",");
    }
    return node;
  }

  ExpressionPtr dict() {
    ExpressionPtr node = make(ExpressionKind::kDict, t_.take().place);
    while (!t_.take_operator("}")) {
      adopt(*node, choice());
      t_.expect_operator(":");
      adopt(*node, choice());
      if (!t_.is_operator("}")) t_.expect_operator(",");
    }
    return node;
  }

  ExpressionPtr postfix(ExpressionPtr node) {
    while (true) {
      const Place place = t_.now().place;
      if (t_.take_operator(".")) {
        ExpressionPtr part;
        if (t_.is(TokenKind::kInteger)) {
          part = make(ExpressionKind::kSubscript, place);
          adopt(*part, std::move(node));
          adopt(*part, number());
        } else {
          part = make(ExpressionKind::kAttribute, place, t_.expect_name());
          adopt(*part, std::move(node));
        }
        node = std::move(part);
      } else if (t_.is_operator("[")) {
        node = subscript(std::move(node));
      } else if (t_.is_operator("(")) {
        ExpressionPtr call = make(ExpressionKind::kCall, place);
        adopt(*call, std::move(node));
        arguments(*call);
        node = std::move(call);
      } else {
        return node;
      }
    }
  }

  ExpressionPtr subscript(ExpressionPtr node) {
    const Place place = t_.take().place;
    std::array<ExpressionPtr, 3> parts;
    std::size_t colons = 0;
    while (!t_.is_operator("]")) {
      if (t_.take_operator(":")) {
        if (++colons > 2) t_.fail("a slice has at most two colons");
      } else {
        if (parts[colons] != nullptr) t_.fail("expected ']', got " + t_.shown());
        parts[colons] = tuple();
      }
    }
    t_.take();
    if (colons == 0 && parts[0] == nullptr) t_.fail("an empty subscript");
    ExpressionPtr part =
        make(colons == 0 ? ExpressionKind::kSubscript : ExpressionKind::kSlice, place);
    adopt(*part, std::move(node));
    adopt(*part, std::move(parts[0]));
    if (colons > 0) {
      adopt(*part, std::move(parts[1]));
      adopt(*part, std::move(parts[2]));
    }
    return part;
  }

  // "(a, b, name=c)" behind the operands that are there.
  void arguments(Expression& call) {
    t_.expect_operator("(");
    while (!t_.take_operator(")")) {
      if (t_.is_operator("*") || t_.is_operator("**")) {
        t_.refuse(t_.now().place, "a call with * or **");
      }
      if (t_.is(TokenKind::kName) && t_.next().kind == TokenKind::kOperator &&
          t_.next().text == "=") {
        std::string keyword = t_.take().text;
        t_.take();
        ExpressionPtr value = choice();
        deepen(call, value.get());
        call.keywords.emplace_back(std::move(keyword), std::move(value));
      } else {
        if (!call.keywords.empty()) t_.fail("a value without name after one with a name");
        adopt(call, choice());
      }
      if (!t_.is_operator(")")) t_.expect_operator(",");
    }
  }

  ExpressionPtr filters(ExpressionPtr node) {
    while (true) {
      const Place place = t_.now().place;
      if (t_.take_operator("|")) {
        ExpressionPtr filter = make(ExpressionKind::kFilter, place, t_.expect_name());
        adopt(*filter, std::move(node));
        if (t_.is_operator("(")) arguments(*filter);
        node = std::move(filter);
      } else if (t_.take_word("is")) {
        node = test(std::move(node), place);
      } else {
        return node;
      }
    }
  }

  ExpressionPtr test(ExpressionPtr node, Place place) {
    const bool negated = t_.take_word("not");
    ExpressionPtr result = make(ExpressionKind::kTest, place, t_.expect_name());
    result->negated = negated;
    adopt(*result, std::move(node));
    const Token& token = t_.now();
    const bool word = token.kind == TokenKind::kName;
    if (t_.is_operator("(")) {
      arguments(*result);
    } else if (token.kind == TokenKind::kString || token.kind == TokenKind::kInteger ||
               token.kind == TokenKind::kFloat || t_.is_operator("[") || t_.is_operator("{") ||
               (word && token.text != "else" && token.text != "or" && token.text != "and" &&
                token.text != "is" && token.text != "if" && token.text != "in" &&
                token.text != "not")) {
      adopt(*result, postfix(primary()));
    }
    return result;
  }

  Tokens& t_;
};

}  // namespace

ExpressionPtr parse_expression(Tokens& tokens, bool tuple) {
  Parser parser(tokens);
  return tuple ? parser.tuple() : parser.choice();
}

ExpressionPtr parse_loop_list(Tokens& tokens) { return Parser(tokens).either(); }

}  // namespace pentatron::tokenizers::chat
