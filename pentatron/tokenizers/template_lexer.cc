// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/template_lexer.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/tokenizers/template_value.h"

namespace pentatron::tokenizers::chat {
namespace {

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool begins_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

// Line ends become line feeds, and one at the very end is no part of the template.
std::string plain_lines(std::string_view source) {
  std::string out;
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
      continue;
    }
    out += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer final {
 public:
  Lexer(std::string_view source, std::string_view name) : text_(plain_lines(source)), name_(name) {}

  std::vector<Token> run() {
    while (at_ < text_.size()) {
      const std::size_t tag = next_tag();
      add_text(tag);
      if (tag == std::string::npos) break;
      move_to(tag);
      if (text_[at_ + 1] == '#') {
        comment();
      } else {
        this->tag();
      }
    }
    add(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(Place place, std::string_view what) const {
    PENTATRON_THROW(kData, "{}:{}:{}: {}", name_, place.line, place.column, what);
  }

  void move_to(std::size_t to) {
    for (; at_ < to; ++at_) {
      if (text_[at_] == '\n') {
        ++place_.line;
        place_.column = 1;
      } else {
        ++place_.column;
      }
    }
  }

  void add(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), place_}); }

  [[nodiscard]] std::size_t next_tag() const {
    for (std::size_t at = text_.find('{', at_); at != std::string::npos;
         at = text_.find('{', at + 1)) {
      const char next = at + 1 < text_.size() ? text_[at + 1] : ' ';
      if (next == '{' || next == '%' || next == '#') return at;
    }
    return std::string::npos;
  }

  // What stands before a tag, without the white space that the tags around it take away.
  void add_text(std::size_t tag) {
    const std::size_t end = std::min(tag, text_.size());
    std::string piece = text_.substr(at_, end - at_);
    if (tag != std::string::npos) {
      const char sign = tag + 2 < text_.size() ? text_[tag + 2] : ' ';
      const bool prints = text_[tag + 1] == '{';
      if (sign == '-') {
        while (!piece.empty() && is_space(piece.back())) piece.pop_back();
      } else if (!prints && sign != '+') {
        strip_line_begin(piece);
      }
    }
    if (!piece.empty()) add(TokenKind::kText, std::move(piece));
    move_to(end);
  }

  // lstrip_blocks: blanks between the begin of the line and the tag.
  void strip_line_begin(std::string& piece) const {
    std::size_t end = piece.size();
    while (end > 0 && is_space(piece[end - 1]) && piece[end - 1] != '\n') --end;
    const bool whole_line = end > 0 ? piece[end - 1] == '\n' : (at_ == 0 || line_begins_);
    if (whole_line) piece.resize(end);
  }

  // `end` is behind the tag: "-" takes all white space, else a line feed behind a block goes.
  void after_tag(std::size_t end, char sign, bool block) {
    move_to(end);
    line_begins_ = false;
    if (sign == '-') {
      std::size_t next = end;
      while (next < text_.size() && is_space(text_[next])) ++next;
      line_begins_ = next > end && text_.find('\n', end) < next;
      move_to(next);
    } else if (block && sign != '+' && end < text_.size() && text_[end] == '\n') {
      move_to(end + 1);
      line_begins_ = true;
    }
  }

  void comment() {
    const std::size_t end = text_.find("#}", at_ + 2);
    if (end == std::string::npos) fail(place_, "a comment {# does not end");
    const char sign = end > at_ + 2 ? text_[end - 1] : ' ';
    after_tag(end + 2, sign, /*block=*/true);
  }

  void tag() {
    const bool block = text_[at_ + 1] == '%';
    const Place begin = place_;
    add(block ? TokenKind::kBlockBegin : TokenKind::kPrintBegin, block ? "{%" : "{{");
    std::size_t start = at_ + 2;
    if (start < text_.size() && (text_[start] == '-' || text_[start] == '+')) ++start;
    move_to(start);
    const std::string close = block ? "%}" : "}}";
    while (true) {
      while (at_ < text_.size() && is_space(text_[at_])) move_to(at_ + 1);
      if (at_ >= text_.size()) fail(begin, "a tag does not end");
      const std::string_view rest = std::string_view(text_).substr(at_);
      const bool sign = (rest[0] == '-' || rest[0] == '+') && rest.substr(1).starts_with(close);
      // "}}" may also close two dicts.
      if (sign || (rest.starts_with(close) && open_.empty())) {
        if (!open_.empty()) fail(place_, "a bracket is not closed before the tag ends");
        add(block ? TokenKind::kBlockEnd : TokenKind::kPrintEnd, close);
        after_tag(at_ + close.size() + (sign ? 1 : 0), sign ? rest[0] : ' ', block);
        return;
      }
      expression_token(rest);
    }
  }

  void expression_token(std::string_view rest) {
    const char c = rest[0];
    if (begins_name(c)) {
      std::size_t size = 1;
      while (size < rest.size() && (begins_name(rest[size]) || is_digit(rest[size]))) ++size;
      if (rest.substr(0, size) == "raw" && tokens_.back().kind == TokenKind::kBlockBegin) {
        PENTATRON_THROW(kUnsupported, "{}:{}:{}: {{% raw %}} is not supported", name_, place_.line,
                        place_.column);
      }
      take(TokenKind::kName, size);
    } else if (is_digit(c)) {
      number(rest);
    } else if (c == '"' || c == '\'') {
      string(rest);
    } else {
      operators(rest);
    }
  }

  void take(TokenKind kind, std::size_t size) {
    add(kind, text_.substr(at_, size));
    move_to(at_ + size);
  }

  void number(std::string_view rest) {
    std::size_t size = 0;
    const auto digits = [&] {
      while (size < rest.size() && is_digit(rest[size])) ++size;
    };
    digits();
    bool whole = true;
    if (size + 1 < rest.size() && rest[size] == '.' && is_digit(rest[size + 1])) {
      ++size;
      digits();
      whole = false;
    }
    if (size < rest.size() && (rest[size] == 'e' || rest[size] == 'E')) {
      std::size_t next = size + 1;
      if (next < rest.size() && (rest[next] == '+' || rest[next] == '-')) ++next;
      if (next < rest.size() && is_digit(rest[next])) {
        size = next;
        digits();
        whole = false;
      }
    }
    if (size < rest.size() && begins_name(rest[size])) {
      PENTATRON_THROW(kUnsupported, "{}:{}:{}: a number of this form is not supported", name_,
                      place_.line, place_.column);
    }
    take(whole ? TokenKind::kInteger : TokenKind::kFloat, size);
  }

  void string(std::string_view rest) {
    std::string value;
    std::size_t i = 1;
    for (; i < rest.size() && rest[i] != rest[0]; ++i) {
      if (rest[i] != '\\' || i + 1 >= rest.size()) {
        value += rest[i];
        continue;
      }
      i += escape(rest.substr(i + 1), value);
    }
    if (i >= rest.size()) fail(place_, "a string does not end");
    add(TokenKind::kString, std::move(value));
    move_to(at_ + i + 1);
  }

  // The bytes after the backslash that belong to it. What is no escape stays as it is.
  static std::size_t escape(std::string_view rest, std::string& value) {
    constexpr std::string_view kNames = "nrtbfav\\'\"";
    constexpr std::string_view kValues = "\n\r\t\b\f\a\v\\'\"";
    constexpr std::string_view kOctal = "01234567";
    const std::size_t digits = rest[0] == 'x' ? 2 : rest[0] == 'u' ? 4 : rest[0] == 'U' ? 8 : 0;
    if (rest[0] == '\n') return 1;
    if (digits > 0 && rest.size() > digits) {
      std::uint32_t code = 0;
      std::size_t i = 1;
      for (; i <= digits; ++i) {
        constexpr std::string_view kHex = "0123456789abcdef0123456789ABCDEF";
        const std::size_t digit = kHex.find(rest[i]);
        if (digit == std::string_view::npos) break;
        code = code << 4 | static_cast<std::uint32_t>(digit % 16);
      }
      const bool surrogate = code >= 0xd800 && code < 0xe000;
      if (i > digits && code < 0x110000 && !surrogate) {
        append_utf8(value, code);
        return digits + 1;
      }
    }
    if (kOctal.find(rest[0]) != std::string_view::npos) {
      char32_t code = 0;
      std::size_t i = 0;
      for (; i < 3 && i < rest.size() && kOctal.find(rest[i]) != std::string_view::npos; ++i) {
        code = code * 8 + static_cast<char32_t>(rest[i] - '0');
      }
      append_utf8(value, code);
      return i;
    }
    const std::size_t known = kNames.find(rest[0]);
    if (known == std::string_view::npos) {
      value += '\\';
      value += rest[0];
    } else {
      value += kValues[known];
    }
    return 1;
  }

  void operators(std::string_view rest) {
    static constexpr std::string_view kOperators[] = {
        "//", "**", "==", "!=", "<=", ">=", "(", ")", "[", "]", "{", "}", ".",
        ",",  ":",  "|",  "~",  "+",  "-",  "*", "/", "%", "<", ">", "="};
    for (const std::string_view sign : kOperators) {
      if (!rest.starts_with(sign)) continue;
      if (sign == "(" || sign == "[" || sign == "{") open_ += sign[0];
      if (sign == ")" || sign == "]" || sign == "}") {
        const char opening = sign == ")" ? '(' : sign == "]" ? '[' : '{';
        if (!open_.ends_with(opening)) fail(place_, "a bracket closes that was not opened");
        open_.pop_back();
      }
      return take(TokenKind::kOperator, sign.size());
    }
    fail(place_, "a character that no expression has");
  }

  std::string text_;
  std::string_view name_;
  std::size_t at_ = 0;
  Place place_;
  bool line_begins_ = false;  // a tag took the line feed before `at_` away
  std::string open_;          // brackets
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> lex_template(std::string_view source, std::string_view name) {
  return Lexer(source, name).run();
}

}  // namespace pentatron::tokenizers::chat
