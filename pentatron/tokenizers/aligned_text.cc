// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/aligned_text.h"

#include <algorithm>

#include "pentatron/tokenizers/code_point_set.h"

namespace pentatron::tokenizers {

AlignedText::AlignedText(std::string_view original, std::size_t begin)
    : text_(original), begin_(begin) {
  origins_.reserve(original.size());
  for (std::size_t at = 0; at < original.size();) {
    const std::size_t size = code_point_at(original, at).size;
    origins_.insert(origins_.end(), size, {.begin = begin + at, .end = begin + at + size});
    at += size;
  }
}

void AlignedText::transform(std::span<const TextChange> changes, std::size_t removed) {
  const AlignedText before = std::move(*this);
  *this = {};
  begin_ = before.begin_;
  std::size_t at = 0;
  const auto pass = [&](std::size_t characters) {
    for (; characters > 0 && at < before.text_.size(); --characters) {
      at += code_point_at(before.text_, at).size;
    }
  };
  pass(removed);
  for (const auto& [text, change] : changes) {
    TokenSpan origin = this->begin();
    if (change <= 0 && at < before.text_.size()) {
      origin = before.origins_[at];
    } else if (at > 0) {
      origin = before.origins_[at - 1];
    }
    if (change <= 0) pass(1 + static_cast<std::size_t>(-change));
    append(text, origin);
  }
}

void AlignedText::prepend(std::string_view text) {
  if (text_.empty()) return;
  const TokenSpan first = origins_.front();
  text_.insert(0, text);
  origins_.insert(origins_.begin(), text.size(), first);
}

void AlignedText::keep(std::size_t begin, std::size_t end) {
  text_ = text_.substr(begin, end - begin);
  origins_.erase(origins_.begin() + static_cast<std::ptrdiff_t>(end), origins_.end());
  origins_.erase(origins_.begin(), origins_.begin() + static_cast<std::ptrdiff_t>(begin));
}

void AlignedText::append(std::string_view text, TokenSpan origin) {
  text_ += text;
  origins_.insert(origins_.end(), text.size(), origin);
}

TokenSpan joined_origin(std::span<const TokenSpan> origins) {
  if (origins.empty()) return {};
  return {.begin = origins.front().begin, .end = origins.back().end};
}

}  // namespace pentatron::tokenizers
