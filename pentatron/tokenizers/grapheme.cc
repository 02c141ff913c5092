// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/grapheme.h"

#include <unicode/uchar.h>

#include <cstdint>

#include "pentatron/tokenizers/code_point_set.h"

namespace pentatron::tokenizers {
namespace {

std::int32_t kind_of(char32_t c) {
  if (c == kInvalidByte) return U_GCB_CONTROL;
  return u_getIntPropertyValue(static_cast<UChar32>(c), UCHAR_GRAPHEME_CLUSTER_BREAK);
}

bool is_pictograph(char32_t c) {
  return c != kInvalidByte &&
         u_hasBinaryProperty(static_cast<UChar32>(c), UCHAR_EXTENDED_PICTOGRAPHIC) != 0;
}

// What is known of the cluster so far.
class Cluster final {
 public:
  explicit Cluster(char32_t first) { take(first, kind_of(first)); }

  // Whether `c` belongs to it; then it has been taken.
  bool joins(char32_t c) {
    const std::int32_t kind = kind_of(c);
    if (!continues(c, kind)) return false;
    take(c, kind);
    return true;
  }

 private:
  [[nodiscard]] bool continues(char32_t c, std::int32_t kind) const {
    const auto control = [](std::int32_t k) {
      return k == U_GCB_CONTROL || k == U_GCB_CR || k == U_GCB_LF;
    };
    if (last_ == U_GCB_CR && kind == U_GCB_LF) return true;
    if (control(last_) || control(kind)) return false;
    // Syllables of Hangul.
    const bool vowel = kind == U_GCB_V;
    if (last_ == U_GCB_L && (kind == U_GCB_L || vowel || kind == U_GCB_LV || kind == U_GCB_LVT)) {
      return true;
    }
    if ((last_ == U_GCB_LV || last_ == U_GCB_V) && (vowel || kind == U_GCB_T)) return true;
    if ((last_ == U_GCB_LVT || last_ == U_GCB_T) && kind == U_GCB_T) return true;
    if (kind == U_GCB_EXTEND || kind == U_GCB_ZWJ || kind == U_GCB_SPACING_MARK) return true;
    if (last_ == U_GCB_PREPEND) return true;
    if (last_ == U_GCB_ZWJ && after_pictograph_ && is_pictograph(c)) return true;
    return last_ == U_GCB_REGIONAL_INDICATOR && kind == U_GCB_REGIONAL_INDICATOR && odd_flag_half_;
  }

  void take(char32_t c, std::int32_t kind) {
    odd_flag_half_ = kind == U_GCB_REGIONAL_INDICATOR && !odd_flag_half_;
    const bool extends = (kind == U_GCB_EXTEND || kind == U_GCB_ZWJ) && last_ != U_GCB_ZWJ;
    after_pictograph_ = is_pictograph(c) || (after_pictograph_ && extends);
    last_ = kind;
  }

  std::int32_t last_ = U_GCB_OTHER;  // kind of the last character
  bool after_pictograph_ = false;    // a pictograph and nothing but what extends it
  bool odd_flag_half_ = false;       // one regional indicator without its second
};

}  // namespace

std::size_t grapheme_size(std::string_view text, std::size_t at) {
  const auto plain = [](char c) { return c >= ' ' && c < '\x7F'; };
  if (plain(text[at]) && (at + 1 == text.size() || plain(text[at + 1]))) return 1;
  const DecodedCodePoint first = code_point_at(text, at);
  Cluster cluster(first.value);
  std::size_t end = at + first.size;
  while (end < text.size()) {
    const DecodedCodePoint next = code_point_at(text, end);
    if (!cluster.joins(next.value)) break;
    end += next.size;
  }
  return end - at;
}

}  // namespace pentatron::tokenizers
