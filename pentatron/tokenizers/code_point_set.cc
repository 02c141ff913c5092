// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/code_point_set.h"

#include <unicode/uchar.h>
#include <unicode/uset.h>
#include <unicode/utf8.h>

#include <algorithm>
#include <memory>
#include <string>

#include "pentatron/base/error.h"

namespace pentatron::tokenizers {
namespace {

struct CloseSet {
  void operator()(USet* set) const { uset_close(set); }
};
using SetPtr = std::unique_ptr<USet, CloseSet>;

std::vector<CodePointSet::Range> ranges_of(const USet* set) {
  std::vector<CodePointSet::Range> ranges;
  const std::int32_t count = uset_getItemCount(set);
  for (std::int32_t i = 0; i < count; ++i) {
    UChar32 first = 0;
    UChar32 last = 0;
    UErrorCode status = U_ZERO_ERROR;
    // Items after the ranges are strings (case closures of one character to several): left out.
    if (uset_getItem(set, i, &first, &last, nullptr, 0, &status) != 0) continue;
    ranges.emplace_back(static_cast<char32_t>(first), static_cast<char32_t>(last));
  }
  return ranges;
}

bool in_unicode_8(char32_t code_point) {
  UVersionInfo version{};
  u_charAge(static_cast<UChar32>(code_point), version);
  return version[0] > 0 && version[0] <= 8;
}

}  // namespace

CodePointSet CodePointSet::of(char32_t first, char32_t last) {
  CodePointSet set;
  set.ranges_.emplace_back(first, last);
  return set;
}

CodePointSet CodePointSet::property(std::string_view name) {
  const std::string pattern = "[\\p{" + std::string(name) + "}]";
  const std::u16string wide(pattern.begin(), pattern.end());
  UErrorCode status = U_ZERO_ERROR;
  const SetPtr set(uset_openPattern(wide.data(), static_cast<std::int32_t>(wide.size()), &status));
  PENTATRON_CHECK(U_SUCCESS(status) && set != nullptr && name.size() < 40, kData,
                  "\\p{{{}}} is no property of characters that is known here", name);
  CodePointSet result;
  result.ranges_ = ranges_of(set.get());
  return result;
}

void CodePointSet::add(const CodePointSet& other) {
  std::vector<Range> all = ranges_;
  all.insert(all.end(), other.ranges_.begin(), other.ranges_.end());
  std::sort(all.begin(), all.end());
  ranges_.clear();
  for (const Range& range : all) {
    if (!ranges_.empty() && range.first <= ranges_.back().second + 1) {
      ranges_.back().second = std::max(ranges_.back().second, range.second);
    } else {
      ranges_.push_back(range);
    }
  }
}

CodePointSet CodePointSet::negated() const {
  CodePointSet result;
  char32_t next = 0;
  for (const auto& [first, last] : ranges_) {
    if (first > next) result.ranges_.emplace_back(next, first - 1);
    next = last + 1;
  }
  if (next <= kInvalidByte) result.ranges_.emplace_back(next, kInvalidByte);
  return result;
}

CodePointSet CodePointSet::case_insensitive() const {
  const SetPtr set(uset_openEmpty());
  bool invalid_byte = false;
  for (auto [first, last] : ranges_) {
    invalid_byte = invalid_byte || last == kInvalidByte;
    if (first == kInvalidByte) continue;
    uset_addRange(set.get(), static_cast<UChar32>(first),
                  static_cast<UChar32>(std::min<char32_t>(last, kInvalidByte - 1)));
  }
  uset_closeOver(set.get(), USET_CASE_INSENSITIVE);
  CodePointSet result;
  result.ranges_ = ranges_of(set.get());
  if (invalid_byte) result.add(of(kInvalidByte, kInvalidByte));
  return result;
}

bool CodePointSet::contains(char32_t code_point) const {
  const auto after =
      std::upper_bound(ranges_.begin(), ranges_.end(), code_point,
                       [](char32_t value, const Range& range) { return value < range.first; });
  return after != ranges_.begin() && std::prev(after)->second >= code_point;
}

bool is_bert_punctuation(char32_t code_point) {
  const char32_t c = code_point;
  if (c < 128)
    return u_ispunct(static_cast<UChar32>(c)) != 0 ||
           std::string_view("$+<=>^`|~").find(static_cast<char>(c)) != std::string_view::npos;
  // Symbols today, punctuation in Unicode 8.
  if (c == 0x166D || c == 0x111C9) return true;
  return in_unicode_8(c) && (U_GET_GC_MASK(static_cast<UChar32>(c)) & U_GC_P_MASK) != 0;
}

bool is_bert_control(char32_t code_point) {
  constexpr std::uint32_t kControls = U_GC_CC_MASK | U_GC_CF_MASK | U_GC_CO_MASK;
  return in_unicode_8(code_point) &&
         (U_GET_GC_MASK(static_cast<UChar32>(code_point)) & kControls) != 0;
}

DecodedCodePoint code_point_at(std::string_view text, std::size_t position) {
  const auto* data = reinterpret_cast<const std::uint8_t*>(text.data()) + position;
  if (*data < 0x80) return {*data, 1};
  const std::size_t left = text.size() - position;
  const int size = left < U8_MAX_LENGTH ? static_cast<int>(left) : U8_MAX_LENGTH;
  int used = 0;
  UChar32 code_point = 0;
  U8_NEXT(data, used, size, code_point);
  if (code_point < 0) return {kInvalidByte, 1};
  return {static_cast<char32_t>(code_point), static_cast<std::uint32_t>(used)};
}

}  // namespace pentatron::tokenizers
