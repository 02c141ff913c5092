// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/white_space.h"

namespace pentatron::tokenizers {
namespace {

// The code points that str.isspace() accepts beyond ASCII.
bool is_wide_space(unsigned code) {
  return code == 0x85 || code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) ||
         code == 0x2028 || code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

unsigned byte_at(std::string_view text, std::size_t at) {
  return at < text.size() ? static_cast<unsigned char>(text[at]) : 0;
}

// The first byte of the character that ends before `end`.
std::size_t begin_of_last(std::string_view text, std::size_t end) {
  std::size_t at = end - 1;
  while (at > 0 && (byte_at(text, at) & 0xc0U) == 0x80) --at;
  return at;
}

}  // namespace

std::size_t white_space_at(std::string_view text, std::size_t at) {
  const unsigned lead = byte_at(text, at);
  if (at >= text.size()) return 0;
  if (lead < 0x80) {
    return lead == ' ' || (lead >= 0x09 && lead <= 0x0d) || (lead >= 0x1c && lead <= 0x1f) ? 1 : 0;
  }
  const unsigned second = byte_at(text, at + 1) & 0x3fU;
  if (lead == 0xc2) return is_wide_space(0x80U | second) ? 2 : 0;
  if (lead < 0xe0 || lead > 0xef) return 0;
  const unsigned code = (lead & 0xfU) << 12 | second << 6 | (byte_at(text, at + 2) & 0x3fU);
  return is_wide_space(code) ? 3 : 0;
}

std::string_view stripped(std::string_view text) {
  std::size_t begin = 0;
  while (const std::size_t size = white_space_at(text, begin)) begin += size;
  text.remove_prefix(begin);
  while (!text.empty()) {
    const std::size_t last = begin_of_last(text, text.size());
    if (white_space_at(text, last) == 0) break;
    text = text.substr(0, last);
  }
  return text;
}

std::string_view last_word(std::string_view text) {
  text = stripped(text);
  std::size_t begin = text.size();
  while (begin > 0) {
    const std::size_t before = begin_of_last(text, begin);
    if (white_space_at(text, before) != 0) break;
    begin = before;
  }
  return text.substr(begin);
}

}  // namespace pentatron::tokenizers
