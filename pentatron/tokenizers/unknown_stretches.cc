// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/unknown_stretches.h"

#include <unicode/uchar.h>

#include <algorithm>

#include "pentatron/tokenizers/code_point_set.h"

namespace pentatron::tokenizers {
namespace {

constexpr std::size_t kLeastText = 1 << 14;  // below it the library is fast enough
constexpr std::size_t kProbe = 64;           // bytes that are looked at
constexpr std::size_t kApart = 1 << 12;      // bytes between the beginnings of two probes

bool continues(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

// The first character that begins at or after `at`, marks being part of the one before them (but
// for endless ones): a normaliser may make one character of both.
std::size_t character_from(std::string_view text, std::size_t at) {
  const std::size_t endless = at + kProbe;
  for (; at < text.size(); ++at) {
    if (continues(text[at])) continue;
    const auto code_point = static_cast<UChar32>(code_point_at(text, at).value);
    if (at >= endless || (U_GET_GC_MASK(code_point) & U_GC_M_MASK) == 0) break;
  }
  return std::min(at, text.size());
}

// The characters that begin in [begin, end).
std::string_view part_of(std::string_view text, std::size_t begin, std::size_t end) {
  begin = character_from(text, begin);
  return text.substr(begin, character_from(text, std::max(begin, end)) - begin);
}

}  // namespace

ShortenedText::ShortenedText(std::string_view text, std::size_t reach,
                             const std::function<bool(std::string_view)>& is_unknown)
    : whole_(text) {
  if (text.size() < kLeastText) return;
  const auto unknown = [&](std::size_t begin, std::size_t end) {
    const std::string_view part = part_of(text, begin, end);
    return !part.empty() && is_unknown(part);
  };
  // What comes to stand side by side may be known together.
  const auto joins = [&](std::size_t from, std::size_t to) {
    return is_unknown(std::string(part_of(text, from - reach, from)) +
                      std::string(part_of(text, to, to + reach)));
  };
  std::size_t copied = 0;  // of the whole text
  for (std::size_t probe = kApart; probe < text.size(); probe += kApart) {
    if (!unknown(probe, probe + kProbe)) continue;
    // As far as parts of twice the reach, one reach after the other, hold nothing else.
    std::size_t begin = probe;
    while (begin >= copied + reach && unknown(begin - reach, begin + reach)) begin -= reach;
    std::size_t end = probe;
    while (end < text.size() && unknown(end, end + 2 * reach)) end += reach;
    // What stands beside the ends sees as much of the stretch as it reaches.
    const std::size_t from = character_from(text, begin + reach);
    const std::size_t to = character_from(text, end > reach ? end - reach : 0);
    if (to > from && joins(from, to)) {
      short_ += text.substr(copied, from - copied);
      const std::size_t before = cuts_.empty() ? 0 : cuts_.back().removed;
      cuts_.push_back({.at = short_.size(), .removed = before + (to - from)});
      copied = to;
    }
    probe = std::max(probe, end / kApart * kApart);
  }
  if (!cuts_.empty()) short_ += text.substr(copied);
}

std::size_t ShortenedText::in_whole(std::size_t place) const {
  const auto after =
      std::ranges::lower_bound(cuts_, place, {}, &Cut::at);  // the first that is not before it
  return after == cuts_.begin() ? place : place + std::prev(after)->removed;
}

}  // namespace pentatron::tokenizers
