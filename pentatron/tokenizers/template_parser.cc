// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/template_parser.h"

#include <algorithm>
#include <array>

#include "pentatron/tokenizers/template_tokens.h"

namespace pentatron::tokenizers::chat {
namespace {

class Parser final {
 public:
  explicit Parser(Tokens& tokens) : t_(tokens) {}

  Statements run() {
    Statements all = statements({});
    if (!t_.is(TokenKind::kEnd)) t_.fail("unexpected " + t_.shown());
    return all;
  }

 private:
  using Names = std::initializer_list<std::string_view>;

  static std::unique_ptr<Statement> make(StatementKind kind, Place place) {
    return std::make_unique<Statement>(Statement{.kind = kind, .place = place});
  }

  // Until one of the block names, which is then the next token (behind its {%).
  Statements statements(Names ends) {
    Statements all;
    while (!t_.is(TokenKind::kEnd)) {
      const Place place = t_.now().place;
      if (t_.is(TokenKind::kText)) {
        all.push_back(make(StatementKind::kText, place));
        all.back()->text = t_.take().text;
      } else if (t_.is(TokenKind::kPrintBegin)) {
        t_.take();
        all.push_back(make(StatementKind::kPrint, place));
        all.back()->value = parse_expression(t_, /*tuple=*/true);
        t_.expect(TokenKind::kPrintEnd, "'}}'");
      } else {
        t_.expect(TokenKind::kBlockBegin, "a tag");
        if (std::find(ends.begin(), ends.end(), t_.now().text) != ends.end()) return all;
        all.push_back(block(place));
      }
    }
    return all;
  }

  void end_tag() { t_.expect(TokenKind::kBlockEnd, "'%}'"); }

  // `body` up to {% name %}, which is taken.
  Statements body_until(std::string_view name) {
    Statements body = statements({name});
    end_of(name);
    return body;
  }

  void end_of(std::string_view name) {
    if (!t_.take_word(name)) t_.fail(fmt::format("{{% {} %}} is missing", name));
    end_tag();
  }

  // What stands behind {% else %}, where that stands, up to the end.
  Statements else_until(std::string_view name) {
    if (t_.take_word("else")) {
      end_tag();
      return body_until(name);
    }
    end_of(name);
    return {};
  }

  std::unique_ptr<Statement> block(Place place) {
    const Tokens::Level level(t_, kMaxSyntaxDepth);
    const std::string name = t_.expect_name();
    if (name == "if") return branch(place);
    if (name == "for") return loop(place);
    if (name == "set") return assignment(place);
    if (name == "macro") return macro(place);
    if (name == "generation") {
      end_tag();
      auto group = make(StatementKind::kGroup, place);
      group->body = body_until("endgeneration");
      return group;
    }
    if (name == "break" || name == "continue") {
      if (loops_ == 0) t_.fail(fmt::format("'{}' outside of a loop", name));
      end_tag();
      return make(name == "break" ? StatementKind::kBreak : StatementKind::kContinue, place);
    }
    static constexpr std::array<std::string_view, 12> kOthers{
        "include", "import", "from", "extends", "block",      "call",
        "filter",  "with",   "do",   "trans",   "autoescape", "debug"};
    if (std::find(kOthers.begin(), kOthers.end(), name) != kOthers.end()) {
      t_.refuse(place, fmt::format("{{% {} %}}", name));
    }
    t_.fail(fmt::format("unexpected '{}'", name));
  }

  // Behind "if" or "elif".
  std::unique_ptr<Statement> branch(Place place) {
    auto node = make(StatementKind::kIf, place);
    Statement* last = node.get();
    while (true) {
      last->value = parse_expression(t_);
      end_tag();
      last->body = statements({"elif", "else", "endif"});
      const Place next = t_.now().place;
      if (t_.take_word("elif")) {
        last->otherwise.push_back(make(StatementKind::kIf, next));
        last = last->otherwise.back().get();
        if (++chain_ > kMaxBranches) t_.fail("too many elif");
        continue;
      }
      last->otherwise = else_until("endif");
      return node;
    }
  }

  std::unique_ptr<Statement> loop(Place place) {
    auto node = make(StatementKind::kFor, place);
    node->targets = targets();
    if (!t_.take_word("in")) t_.fail("expected 'in', got " + t_.shown());
    node->value = parse_loop_list(t_);
    if (t_.take_word("if")) node->condition = parse_expression(t_);
    if (t_.is_word("recursive")) t_.refuse(t_.now().place, "a recursive loop");
    end_tag();
    ++loops_;
    node->body = statements({"else", "endfor"});
    --loops_;
    node->otherwise = else_until("endfor");
    return node;
  }

  // a   a, b   (a, b)
  std::vector<std::string> targets() {
    std::vector<std::string> names;
    const bool brackets = t_.take_operator("(");
    if (loops_ > 0 && t_.is_word("loop")) t_.fail("'loop' cannot be set inside of a loop");
    do {
      if (t_.is_operator("(")) t_.refuse(t_.now().place, "a name list inside another");
      if (!names.empty() && !t_.is(TokenKind::kName)) break;
      names.push_back(t_.expect_name());
    } while (t_.take_operator(","));
    if (brackets) t_.expect_operator(")");
    return names;
  }

  std::unique_ptr<Statement> assignment(Place place) {
    auto node = make(StatementKind::kSet, place);
    node->targets = targets();
    if (node->targets.size() == 1 && t_.take_operator(".")) node->attribute = t_.expect_name();
    if (t_.take_operator("=")) {
      node->value = parse_expression(t_, /*tuple=*/true);
      end_tag();
      return node;
    }
    if (t_.is_operator("|")) t_.refuse(t_.now().place, "{% set %} of a block with filters");
    if (node->targets.size() != 1 || !node->attribute.empty()) {
      t_.fail("expected '=', got " + t_.shown());
    }
    end_tag();
    node->kind = StatementKind::kSetBlock;
    node->body = body_until("endset");
    return node;
  }

  std::unique_ptr<Statement> macro(Place place) {
    // It would see the names around it.
    if (loops_ > 0 || macros_ > 0) t_.refuse(place, "a macro inside a loop or a macro");
    auto made = std::make_shared<Macro>();
    made->name = t_.expect_name();
    t_.expect_operator("(");
    while (!t_.take_operator(")")) {
      Parameter parameter{.name = t_.expect_name(), .default_value = {}};
      if (t_.take_operator("=")) {
        parameter.default_value = parse_expression(t_);
      } else if (!made->parameters.empty() && made->parameters.back().default_value != nullptr) {
        t_.fail("a parameter without a default behind one with a default");
      }
      made->parameters.push_back(std::move(parameter));
      if (!t_.is_operator(")")) t_.expect_operator(",");
    }
    end_tag();
    ++macros_;
    made->body = body_until("endmacro");
    --macros_;
    auto node = make(StatementKind::kMacro, place);
    node->macro = std::move(made);
    return node;
  }

  static constexpr int kMaxBranches = 1000;  // they nest in the tree

  Tokens& t_;
  int loops_ = 0;   // around the current place
  int macros_ = 0;  // likewise
  int chain_ = 0;
};

}  // namespace

Statements parse_template(std::string_view source, std::string_view name) {
  Tokens tokens(lex_template(source, name), name);
  return Parser(tokens).run();
}

}  // namespace pentatron::tokenizers::chat
