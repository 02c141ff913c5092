// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/tokenizers/template_syntax.h"

namespace pentatron::tokenizers::chat {

// The tokens of a template while they are parsed, with the errors of that.
class Tokens final {
 public:
  Tokens(std::vector<Token> tokens, std::string_view name)
      : tokens_(std::move(tokens)), name_(name) {}

  [[nodiscard]] const Token& now() const { return tokens_[at_]; }
  [[nodiscard]] const Token& next() const {
    return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_];
  }
  const Token& take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }

  [[nodiscard]] bool is(TokenKind kind) const { return now().kind == kind; }
  [[nodiscard]] bool is(TokenKind kind, std::string_view text) const {
    return is(kind) && now().text == text;
  }
  [[nodiscard]] bool is_operator(std::string_view text) const {
    return is(TokenKind::kOperator, text);
  }
  [[nodiscard]] bool is_word(std::string_view text) const { return is(TokenKind::kName, text); }

  bool take_operator(std::string_view text) {
    if (!is_operator(text)) return false;
    take();
    return true;
  }
  bool take_word(std::string_view text) {
    if (!is_word(text)) return false;
    take();
    return true;
  }
  void expect_operator(std::string_view text) {
    if (!take_operator(text)) fail(fmt::format("expected '{}', got {}", text, shown()));
  }
  std::string expect_name() {
    if (!is(TokenKind::kName)) fail("expected a name, got " + shown());
    return take().text;
  }
  void expect(TokenKind kind, std::string_view what) {
    if (!is(kind)) fail(fmt::format("expected {}, got {}", what, shown()));
    take();
  }

  [[noreturn]] void fail(std::string_view what) const {
    PENTATRON_THROW(kData, "{}:{}:{}: {}", name_, now().place.line, now().place.column, what);
  }
  [[noreturn]] void refuse(Place place, std::string_view what) const {
    PENTATRON_THROW(kUnsupported, "{}:{}:{}: {} is not supported", name_, place.line, place.column,
                    what);
  }
  [[nodiscard]] std::string shown() const {
    constexpr std::size_t kShown = 30;
    if (is(TokenKind::kEnd)) return "the end of the template";
    return fmt::format("'{}'", now().text.substr(0, kShown));
  }

  // One level of nesting while it lives.
  class Level final {
   public:
    Level(Tokens& tokens, int most) : tokens_(tokens) {
      if (++tokens_.depth_ > most) tokens_.fail("nested too deeply");
    }
    ~Level() { --tokens_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Tokens& tokens_;
  };

 private:
  std::vector<Token> tokens_;
  std::string_view name_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

// An expression from here on, a condition or several with commas between them too (a tuple) where
// `tuple` says so. (template_expressions.cc)
[[nodiscard]] ExpressionPtr parse_expression(Tokens& tokens, bool tuple = false);
// Without `a if b else c`: the list of a loop, whose `if` is the loop's.
[[nodiscard]] ExpressionPtr parse_loop_list(Tokens& tokens);

}  // namespace pentatron::tokenizers::chat
