// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/template_text.h"

#include <unicode/locid.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include <algorithm>

#include "pentatron/base/error.h"
#include "pentatron/tokenizers/template_value.h"
#include "pentatron/tokenizers/white_space.h"

namespace pentatron::tokenizers::chat {
namespace {

template <typename Change>
std::string changed(std::string_view text, Change&& change) {
  icu::UnicodeString wide =
      icu::UnicodeString::fromUTF8({text.data(), static_cast<std::int32_t>(text.size())});
  change(wide);
  std::string out;
  wide.toUTF8String(out);
  return out;
}

void check_size(std::string_view text) {
  PENTATRON_CHECK(text.size() < (1U << 30), kData, "a text of {} bytes", text.size());
}

std::string encoded(std::u32string_view codes) {
  std::string out;
  for (const char32_t code : codes) append_utf8(out, code);
  return out;
}

// Bytes of the white space before `end`; 0: none.
std::size_t white_space_before(std::string_view text, std::size_t end) {
  std::size_t at = end;
  while (at > 0) {
    --at;
    if ((static_cast<unsigned char>(text[at]) & 0xc0U) != 0x80) break;
  }
  return end > 0 && white_space_at(text, at) > 0 ? end - at : 0;
}

// Bytes of the end of a line that begins at `at`; 0 where none does.
std::size_t line_end_at(std::string_view text, std::size_t at) {
  const std::string_view rest = text.substr(at);
  if (rest.starts_with("\r\n")) return 2;
  if ((rest[0] >= '\n' && rest[0] <= '\r') || (rest[0] >= 0x1c && rest[0] <= 0x1e)) return 1;
  if (rest.starts_with("\xc2\x85")) return 2;
  return rest.starts_with("\xe2\x80\xa8") || rest.starts_with("\xe2\x80\xa9") ? 3 : 0;
}

}  // namespace

std::string strip(std::string_view text, Sides sides) {
  if (sides != Sides::kRight) {
    while (const std::size_t size = white_space_at(text, 0)) text.remove_prefix(size);
  }
  if (sides != Sides::kLeft) {
    while (const std::size_t size = white_space_before(text, text.size())) text.remove_suffix(size);
  }
  return std::string(text);
}

std::string strip(std::string_view text, Sides sides, std::string_view characters) {
  const std::u32string codes = code_points(text);
  const std::u32string cut = code_points(characters);
  std::size_t begin = 0;
  std::size_t end = codes.size();
  const auto is_cut = [&](char32_t code) { return cut.find(code) != std::u32string::npos; };
  while (sides != Sides::kRight && begin < end && is_cut(codes[begin])) ++begin;
  while (sides != Sides::kLeft && end > begin && is_cut(codes[end - 1])) --end;
  return encoded(std::u32string_view(codes).substr(begin, end - begin));
}

std::string upper(std::string_view text) {
  check_size(text);
  return changed(text, [](icu::UnicodeString& wide) { wide.toUpper(icu::Locale::getRoot()); });
}

std::string lower(std::string_view text) {
  check_size(text);
  return changed(text, [](icu::UnicodeString& wide) { wide.toLower(icu::Locale::getRoot()); });
}

std::string capitalize(std::string_view text) {
  const std::u32string codes = code_points(text);
  if (codes.empty()) return {};
  std::string out;
  append_utf8(out, static_cast<char32_t>(::u_totitle(static_cast<UChar32>(codes[0]))));
  return out + lower(encoded(std::u32string_view(codes).substr(1)));
}

std::string title(std::string_view text) {
  std::string out;
  bool inside = false;
  for (const char32_t code : code_points(text)) {
    const auto c = static_cast<UChar32>(code);
    append_utf8(out, static_cast<char32_t>(inside ? ::u_tolower(c) : ::u_totitle(c)));
    inside = ::u_isalpha(c) != 0;
  }
  return out;
}

std::string replace(std::string_view text, std::string_view from, std::string_view to,
                    std::int64_t most) {
  std::string out;
  std::size_t at = 0;
  std::int64_t count = 0;
  if (from.empty()) {
    // Before every character and at the end.
    for (const char32_t code : code_points(text)) {
      if (most < 0 || count++ < most) out += to;
      append_utf8(out, code);
    }
    if (most < 0 || count < most) out += to;
    return out;
  }
  while (most < 0 || count++ < most) {
    const std::size_t found = text.find(from, at);
    if (found == std::string_view::npos) break;
    out += text.substr(at, found - at);
    out += to;
    at = found + from.size();
    PENTATRON_CHECK(out.size() < (1U << 30), kData, "replace gives a text of over 1 GiB");
  }
  return out + std::string(text.substr(at));
}

std::vector<std::string> split(std::string_view text, std::int64_t most, bool from_right) {
  std::vector<std::string> parts;
  while (true) {
    // White space before the next part goes; behind the last cut the rest stays as it is.
    const auto space = [&] {
      return from_right ? white_space_before(text, text.size()) : white_space_at(text, 0);
    };
    while (const std::size_t size = space()) {
      from_right ? text.remove_suffix(size) : text.remove_prefix(size);
    }
    if (text.empty()) break;
    if (most >= 0 && static_cast<std::int64_t>(parts.size()) == most) {
      parts.emplace_back(text);
      break;
    }
    if (from_right) {
      std::size_t begin = text.size();
      while (begin > 0 && white_space_before(text, begin) == 0) --begin;
      parts.emplace_back(text.substr(begin));
      text = text.substr(0, begin);
    } else {
      std::size_t end = 0;
      while (end < text.size() && white_space_at(text, end) == 0) ++end;
      parts.emplace_back(text.substr(0, end));
      text.remove_prefix(end);
    }
  }
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string> split(std::string_view text, std::string_view separator, std::int64_t most,
                               bool from_right) {
  PENTATRON_CHECK(!separator.empty(), kData, "split at an empty text");
  std::vector<std::string> parts;
  while (most < 0 || static_cast<std::int64_t>(parts.size()) < most) {
    const std::size_t found = from_right ? text.rfind(separator) : text.find(separator);
    if (found == std::string_view::npos) break;
    parts.emplace_back(from_right ? text.substr(found + separator.size()) : text.substr(0, found));
    text = from_right ? text.substr(0, found) : text.substr(found + separator.size());
  }
  parts.emplace_back(text);
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string> lines;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t size = line_end_at(text, at);
    if (size == 0) {
      ++at;
      continue;
    }
    lines.emplace_back(text.substr(0, keep_ends ? at + size : at));
    text.remove_prefix(at + size);
    at = 0;
  }
  if (!text.empty()) lines.emplace_back(text);
  return lines;
}

}  // namespace pentatron::tokenizers::chat
