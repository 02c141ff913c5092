// SPDX-License-Identifier: Apache-2.0
// Values as Python prints them: repr() and json.dumps().
#include <fmt/format.h>

#include <algorithm>

#include "pentatron/base/error.h"
#include "pentatron/tokenizers/template_value.h"

namespace pentatron::tokenizers::chat {
namespace {

void append_repr(std::string& out, std::string_view text) {
  const bool single = text.find('\'') != std::string_view::npos;
  const bool both = single && text.find('"') != std::string_view::npos;
  const char quote = single && !both ? '"' : '\'';
  out += quote;
  for (const char c : text) {
    switch (c) {
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (c == quote) {
          out += '\\';
          out += c;
        } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
          out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
        } else {
          out += c;
        }
    }
  }
  out += quote;
}

void append_value(std::string& out, const Value& value);

void append_items(std::string& out, const std::vector<std::pair<std::string, Value>>& items) {
  const char* separator = "";
  for (const auto& [key, item] : items) {
    out += separator;
    append_repr(out, key);
    out += ": ";
    append_value(out, item);
    separator = ", ";
  }
}

void append_value(std::string& out, const Value& value) {
  if (value.is_none()) {
    out += "None";
  } else if (value.is_undefined()) {
    out += "Undefined";
  } else if (const bool* flag = value.get_if<bool>()) {
    out += *flag ? "True" : "False";
  } else if (value.is_integer()) {
    out += std::to_string(value.integer());
  } else if (value.is_number()) {
    out += float_text(value.number());
  } else if (const std::string* text = value.string()) {
    append_repr(out, *text);
  } else if (const List* list = value.list()) {
    out += list->tuple ? '(' : '[';
    const char* separator = "";
    for (const Value& item : list->items) {
      out += separator;
      append_value(out, item);
      separator = ", ";
    }
    if (list->tuple && list->items.size() == 1) out += ',';
    out += list->tuple ? ')' : ']';
  } else if (const Dict* dict = value.dict()) {
    out += '{';
    append_items(out, dict->items);
    out += '}';
  } else {
    PENTATRON_THROW(kData, "a {} cannot be printed", value.type_name());
  }
}

class JsonWriter final {
 public:
  explicit JsonWriter(const JsonStyle& style) : style_(style) {}

  void write(const Value& value, int level) {
    if (value.is_none()) {
      out_ += "null";
    } else if (const bool* flag = value.get_if<bool>()) {
      out_ += *flag ? "true" : "false";
    } else if (value.is_integer()) {
      out_ += std::to_string(value.integer());
    } else if (value.is_number()) {
      out_ += number(value.number());
    } else if (const std::string* text = value.string()) {
      write_string(*text);
    } else if (const List* list = value.list()) {
      write_list(*list, level);
    } else if (const Dict* dict = value.dict()) {
      write_dict(*dict, level);
    } else {
      PENTATRON_THROW(
          kData, "tojson: {} has no JSON",
          value.is_undefined() ? "something undefined" : fmt::format("a {}", value.type_name()));
    }
  }
  [[nodiscard]] std::string take() { return std::move(out_); }

 private:
  static std::string number(double value) {
    const std::string text = float_text(value);
    if (text == "nan") return "NaN";
    if (text.ends_with("inf")) return value > 0 ? "Infinity" : "-Infinity";
    return text;
  }

  void new_line(int level) {
    if (style_.indent < 0) return;
    out_ += '\n';
    out_.append(static_cast<std::size_t>(style_.indent) * static_cast<std::size_t>(level), ' ');
  }

  // Between items; Python leaves out the space before a line's end.
  void separate(int level) {
    out_ += style_.indent < 0 || style_.item_separator != ", " ? style_.item_separator : ",";
    new_line(level);
  }

  void write_list(const List& list, int level) {
    out_ += '[';
    for (std::size_t i = 0; i < list.items.size(); ++i) {
      if (i == 0) new_line(level + 1);
      if (i > 0) separate(level + 1);
      write(list.items[i], level + 1);
    }
    if (!list.items.empty()) new_line(level);
    out_ += ']';
  }

  void write_dict(const Dict& dict, int level) {
    std::vector<const std::pair<std::string, Value>*> items;
    for (const auto& item : dict.items) items.push_back(&item);
    if (style_.sort_keys) {
      std::sort(items.begin(), items.end(),
                [](const auto* a, const auto* b) { return a->first < b->first; });
    }
    out_ += '{';
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i == 0) new_line(level + 1);
      if (i > 0) separate(level + 1);
      write_string(items[i]->first);
      out_ += style_.key_separator;
      write(items[i]->second, level + 1);
    }
    if (!items.empty()) new_line(level);
    out_ += '}';
  }

  void escape(char32_t code) {
    if (code >= 0x10000) {
      out_ += fmt::format("\\u{:04x}\\u{:04x}",
                          0xd800 + ((static_cast<unsigned>(code) - 0x10000) >> 10),
                          0xdc00 + (static_cast<unsigned>(code) & 0x3ff));
    } else {
      out_ += fmt::format("\\u{:04x}", static_cast<unsigned>(code));
    }
  }

  void write_string(std::string_view text) {
    out_ += '"';
    for (const char32_t code : code_points(text)) {
      switch (code) {
        case '"':
          out_ += "\\\"";
          break;
        case '\\':
          out_ += "\\\\";
          break;
        case '\n':
          out_ += "\\n";
          break;
        case '\r':
          out_ += "\\r";
          break;
        case '\t':
          out_ += "\\t";
          break;
        case '\b':
          out_ += "\\b";
          break;
        case '\f':
          out_ += "\\f";
          break;
        default:
          if (code < 0x20 || (style_.ensure_ascii && code > 0x7e)) {
            escape(code);
          } else {
            append_utf8(out_, code);
          }
      }
    }
    out_ += '"';
  }

  const JsonStyle& style_;
  std::string out_;
};

}  // namespace

std::string to_repr(const Value& value) {
  std::string out;
  append_value(out, value);
  return out;
}

std::string to_json(const Value& value, const JsonStyle& style) {
  JsonWriter writer(style);
  writer.write(value, 0);
  return writer.take();
}

std::u32string code_points(std::string_view text) {
  std::u32string codes;
  for (std::size_t at = 0; at < text.size();) {
    const auto byte = [&](std::size_t i) {
      return static_cast<char32_t>(static_cast<unsigned char>(i < text.size() ? text[i] : 0));
    };
    const char32_t lead = byte(at);
    if (lead < 0x80) {
      codes += lead;
      at += 1;
    } else if (lead < 0xe0) {
      codes += (lead & 0x1f) << 6 | (byte(at + 1) & 0x3f);
      at += 2;
    } else if (lead < 0xf0) {
      codes += (lead & 0xf) << 12 | (byte(at + 1) & 0x3f) << 6 | (byte(at + 2) & 0x3f);
      at += 3;
    } else {
      codes += (lead & 0x7) << 18 | (byte(at + 1) & 0x3f) << 12 | (byte(at + 2) & 0x3f) << 6 |
               (byte(at + 3) & 0x3f);
      at += 4;
    }
  }
  return codes;
}

void append_utf8(std::string& out, char32_t code) {
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xc0 | code >> 6);
    out += static_cast<char>(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    out += static_cast<char>(0xe0 | code >> 12);
    out += static_cast<char>(0x80 | (code >> 6 & 0x3f));
    out += static_cast<char>(0x80 | (code & 0x3f));
  } else {
    out += static_cast<char>(0xf0 | code >> 18);
    out += static_cast<char>(0x80 | (code >> 12 & 0x3f));
    out += static_cast<char>(0x80 | (code >> 6 & 0x3f));
    out += static_cast<char>(0x80 | (code & 0x3f));
  }
}

std::int64_t num_code_points(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

}  // namespace pentatron::tokenizers::chat
