// SPDX-License-Identifier: Apache-2.0
#include "pentatron/base/printable.h"

#include <fmt/format.h>

namespace pentatron {
namespace {

// Bytes of the well-formed UTF-8 character at the start of the text, 0 where there is none; C1
// controls (U+0080 to U+009F), which terminals obey, count as none.
std::size_t character_bytes(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  const auto continues = [&](std::size_t i, unsigned least, unsigned most) {
    return i < text.size() && byte(i) >= least && byte(i) <= most;
  };
  if (first < 0x80) return first >= 0x20 && first != 0x7F ? 1 : 0;
  if (first == 0xC2) return continues(1, 0xA0, 0xBF) ? 2 : 0;
  if (first >= 0xC3 && first <= 0xDF) return continues(1, 0x80, 0xBF) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const unsigned least = first == 0xE0 ? 0xA0 : 0x80;
    const unsigned most = first == 0xED ? 0x9F : 0xBF;
    return continues(1, least, most) && continues(2, 0x80, 0xBF) ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const unsigned least = first == 0xF0 ? 0x90 : 0x80;
    const unsigned most = first == 0xF4 ? 0x8F : 0xBF;
    return continues(1, least, most) && continues(2, 0x80, 0xBF) && continues(3, 0x80, 0xBF) ? 4
                                                                                             : 0;
  }
  return 0;
}

}  // namespace

std::string printable(std::string_view text, std::size_t max_bytes) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    if (at >= max_bytes) return result + "...";
    const std::size_t bytes = character_bytes(text.substr(at));
    if (bytes == 0) {
      result += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[at]));
      ++at;
    } else {
      result += text.substr(at, bytes);
      at += bytes;
    }
  }
  return result;
}

}  // namespace pentatron
