// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/json_scanner.h"

#include <utility>

namespace pentatron::datasets {
namespace {

constexpr std::size_t kMaxDepth = 1024;
constexpr std::string_view kEndsEarly = "ends in the middle of the object";

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

class Scanner final {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  JsonScan run() {
    if (object()) {
      skip_space();
      if (at_ < text_.size()) (void)fail("something follows the object");
    }
    return std::move(scan_);
  }

 private:
  bool fail(std::string_view what) {
    scan_.error = std::string(what);
    scan_.error_offset = at_;
    return false;
  }
  [[nodiscard]] bool ended() const { return at_ >= text_.size(); }

  void skip_space() {
    while (!ended() &&
           (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\r' || text_[at_] == '\n')) {
      ++at_;
    }
  }

  // The character `c` after white space.
  bool expect(char c, std::string_view otherwise) {
    skip_space();
    if (ended()) return fail(kEndsEarly);
    if (text_[at_] != c) return fail(otherwise);
    ++at_;
    return true;
  }

  // The line as a whole. `open_` holds what stands around the current place.
  bool object() {
    skip_space();
    if (ended() || text_[at_] != '{') return fail("no object begins here");
    bool value_next = true;
    while (true) {
      if (value_next && !value(value_next)) return false;
      if (!value_next && !after_value(value_next)) return false;
      if (open_.empty()) return true;
    }
  }

  // A scalar, or the opening of a container up to its first value. `value_next`: whether another
  // value follows directly.
  bool value(bool& value_next) {
    skip_space();
    if (ended()) return fail(kEndsEarly);
    const char c = text_[at_];
    if (c != '{' && c != '[') {
      value_next = false;
      return scalar(c);
    }
    if (open_.size() == kMaxDepth) return fail("is nested deeper than 1024 levels");
    open_.push_back(c);
    ++at_;
    skip_space();
    const char close = c == '{' ? '}' : ']';
    if (!ended() && text_[at_] == close) {
      value_next = false;
      return true;  // after_value() closes it
    }
    value_next = true;
    return c == '[' || key();
  }

  // A comma and what leads to the next value, or the end of containers.
  bool after_value(bool& value_next) {
    const bool outermost = open_.size() == 1;
    if (outermost && !scan_.fields.empty()) scan_.fields.back().value_end = at_;
    skip_space();
    if (ended()) return fail(kEndsEarly);
    const char close = open_.back() == '{' ? '}' : ']';
    if (text_[at_] == close) {
      ++at_;
      open_.pop_back();
      value_next = false;
      return true;
    }
    if (text_[at_] != ',') return fail("expected a comma or the end of the object or list");
    ++at_;
    value_next = true;
    return open_.back() == '[' || key();
  }

  bool key() {
    skip_space();
    const std::size_t begin = at_;
    if (ended()) return fail(kEndsEarly);
    if (text_[at_] != '"') return fail("expected a key in double quotes");
    if (!string()) return false;
    const std::size_t end = at_;
    if (!expect(':', "expected a colon after the key")) return false;
    skip_space();
    if (open_.size() == 1) scan_.fields.push_back({begin, end, at_, at_});
    return true;
  }

  bool scalar(char c) {
    if (c == '"') return string();
    for (const std::string_view word : {"true", "false", "null", "NaN", "Infinity", "-Infinity"}) {
      if (text_.substr(at_).starts_with(word)) {
        at_ += word.size();
        return true;
      }
    }
    if (c == '-' || is_digit(c)) return number();
    return fail("expected a value");
  }

  bool digits() {
    if (ended()) return fail(kEndsEarly);
    if (!is_digit(text_[at_])) return fail("is no number");
    while (!ended() && is_digit(text_[at_])) ++at_;
    return true;
  }

  bool number() {
    if (text_[at_] == '-') ++at_;
    if (!ended() && text_[at_] == '0') {
      ++at_;
    } else if (!digits()) {
      return false;
    }
    if (!ended() && text_[at_] == '.') {
      ++at_;
      if (!digits()) return false;
    }
    if (!ended() && (text_[at_] == 'e' || text_[at_] == 'E')) {
      ++at_;
      if (!ended() && (text_[at_] == '+' || text_[at_] == '-')) ++at_;
      return digits();
    }
    return true;
  }

  bool string() {
    ++at_;
    for (; !ended(); ++at_) {
      const char c = text_[at_];
      if (c == '"') {
        ++at_;
        return true;
      }
      if (static_cast<unsigned char>(c) < 0x20) {
        return fail("a control character stands in a string");
      }
      if (c == '\\' && !escape()) return false;
    }
    return fail("ends in the middle of a string");
  }

  // Ends on the last byte of the escape.
  bool escape() {
    ++at_;
    if (ended()) return fail("ends in the middle of a string");
    if (text_[at_] != 'u') {
      constexpr std::string_view kKnown = "\"\\/bfnrt";
      return kKnown.find(text_[at_]) != std::string_view::npos || fail("no escape of this name");
    }
    for (int i = 0; i < 4; ++i) {
      ++at_;
      if (ended()) return fail("ends in the middle of a string");
      if (!is_hex(text_[at_])) return fail("\\u needs four hexadecimal digits");
    }
    return true;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::vector<char> open_;
  JsonScan scan_;
};

}  // namespace

JsonScan scan_json_object(std::string_view line) { return Scanner(line).run(); }

}  // namespace pentatron::datasets
