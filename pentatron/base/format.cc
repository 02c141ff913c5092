// SPDX-License-Identifier: Apache-2.0
#include "pentatron/base/format.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <utility>

namespace pentatron {
namespace {

struct CodePoint {
  char32_t value = 0;
  std::size_t bytes = 1;
  bool valid = false;
};

// The first code point of non-empty text; an ill-formed sequence gives its first byte as invalid.
CodePoint first_code_point(std::string_view text) {
  const auto byte = [text](std::size_t i) {
    return i < text.size() ? static_cast<std::uint8_t>(text[i]) : std::uint8_t{0};
  };
  const std::uint8_t lead = byte(0);
  if (lead < 0x80) return {lead, 1, true};
  std::size_t length = 0;
  if ((lead & 0xe0) == 0xc0) length = 2;
  if ((lead & 0xf0) == 0xe0) length = 3;
  if ((lead & 0xf8) == 0xf0) length = 4;
  if (length == 0) return {lead, 1, false};
  char32_t value = lead & (0x7f >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {lead, 1, false};
    value = (value << 6) | (byte(i) & 0x3f);
  }
  constexpr std::array<char32_t, 5> kLeast = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = value >= 0xd800 && value <= 0xdfff;
  if (value < kLeast[length] || value > 0x10ffff || surrogate) return {lead, 1, false};
  return {value, length, true};
}

// Code points that Python's repr escapes: controls, separators other than space, formats,
// surrogates, private use and noncharacters.
bool unprintable(char32_t c) {
  constexpr std::array<std::pair<char32_t, char32_t>, 19> kRanges = {{
      {0x00, 0x1f},     {0x7f, 0xa0},     {0xad, 0xad},       {0x600, 0x605},      {0x61c, 0x61c},
      {0x6dd, 0x6dd},   {0x70f, 0x70f},   {0x1680, 0x1680},   {0x180e, 0x180e},    {0x2000, 0x200f},
      {0x2028, 0x202f}, {0x205f, 0x206f}, {0x3000, 0x3000},   {0xd800, 0xf8ff},    {0xfeff, 0xfeff},
      {0xfff0, 0xfffb}, {0xfffe, 0xffff}, {0xe0000, 0xe00ff}, {0xf0000, 0x10ffff},
  }};
  for (const auto& [first, last] : kRanges) {
    if (c >= first && c <= last) return true;
  }
  return false;
}

void append_escape(std::string& out, char32_t c) {
  const auto value = static_cast<std::uint32_t>(c);
  if (c == '\n') {
    out += "\\n";
  } else if (c == '\r') {
    out += "\\r";
  } else if (c == '\t') {
    out += "\\t";
  } else if (value <= 0xff) {
    out += fmt::format("\\x{:02x}", value);
  } else if (value <= 0xffff) {
    out += fmt::format("\\u{:04x}", value);
  } else {
    out += fmt::format("\\U{:08x}", value);
  }
}

constexpr std::uint32_t kEscapedByte = 0xdc00;  // Python's surrogateescape block

}  // namespace

std::string python_repr_float(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  // Shortest digits in the form d[.ddd]e[+-]dd, taken apart and laid out by Python's rule.
  std::array<char, 40> buffer{};
  const auto written = std::to_chars(buffer.data(), buffer.data() + buffer.size(), std::abs(value),
                                     std::chars_format::scientific);
  const std::string_view text(buffer.data(), static_cast<std::size_t>(written.ptr - buffer.data()));
  const std::size_t mark = text.find('e');
  const int exponent = std::atoi(std::string(text.substr(mark + 1)).c_str());
  std::string digits(1, text[0]);
  if (mark > 2) digits += text.substr(2, mark - 2);
  std::string out = std::signbit(value) ? "-" : "";
  const int count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits.substr(0, 1);
    if (count > 1) out += "." + digits.substr(1);
    return out + fmt::format("e{}{:02}", exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) {
    return out + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  }
  if (count <= exponent + 1) {
    return out + digits + std::string(static_cast<std::size_t>(exponent + 1 - count), '0') + ".0";
  }
  const auto point = static_cast<std::size_t>(exponent + 1);
  return out + digits.substr(0, point) + "." + digits.substr(point);
}

std::string python_repr_text(std::string_view value) {
  const bool has_single = value.find('\'') != std::string_view::npos;
  const bool has_double = value.find('"') != std::string_view::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  std::string out(1, quote);
  while (!value.empty()) {
    const CodePoint c = first_code_point(value);
    if (!c.valid) {
      out += fmt::format("\\u{:04x}", kEscapedByte + static_cast<std::uint32_t>(c.value));
    } else if (c.value == static_cast<char32_t>(quote) || c.value == '\\') {
      out += '\\';
      out += static_cast<char>(c.value);
    } else if (unprintable(c.value)) {
      append_escape(out, c.value);
    } else {
      out += value.substr(0, c.bytes);
    }
    value.remove_prefix(c.bytes);
  }
  return out + quote;
}

std::string python_json_float(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  return python_repr_float(value);
}

std::string python_json_text(std::string_view value) {
  std::string out = "\"";
  while (!value.empty()) {
    const CodePoint c = first_code_point(value);
    auto code = static_cast<std::uint32_t>(c.value);
    if (!c.valid) {
      out += fmt::format("\\u{:04x}", kEscapedByte + code);
    } else if (code == '"' || code == '\\') {
      out += '\\';
      out += static_cast<char>(code);
    } else if (code == '\b') {
      out += "\\b";
    } else if (code == '\f') {
      out += "\\f";
    } else if (code == '\n' || code == '\r' || code == '\t') {
      append_escape(out, c.value);
    } else if (code >= 0x20 && code < 0x7f) {
      out += static_cast<char>(code);
    } else if (code < 0x10000) {
      out += fmt::format("\\u{:04x}", code);
    } else {
      code -= 0x10000;
      out += fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + (code >> 10), 0xdc00 + (code & 0x3ff));
    }
    value.remove_prefix(c.bytes);
  }
  return out + "\"";
}

std::string quoted_for_message(std::string_view value) {
  constexpr std::size_t kMaxBytes = 80;
  if (value.size() <= kMaxBytes) return python_repr_text(value);
  return python_repr_text(value.substr(0, kMaxBytes)) + "...";
}

}  // namespace pentatron
