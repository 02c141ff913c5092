// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/added_tokens.h"

#include <unicode/uchar.h>

#include <algorithm>

#include "pentatron/tokenizers/code_point_set.h"

namespace pentatron::tokenizers {
namespace {

std::uint8_t first_byte(const AddedToken& token) {
  return static_cast<std::uint8_t>(token.content.front());
}

// The character that ends at `end`; kInvalidByte at the beginning.
DecodedCodePoint before(std::string_view text, std::size_t end) {
  std::size_t begin = end;
  while (begin > 0 && end - begin < 4) {
    --begin;
    if ((static_cast<std::uint8_t>(text[begin]) & 0xC0) != 0x80) break;
  }
  if (begin == end) return {kInvalidByte, 0};
  const DecodedCodePoint c = code_point_at(text, begin);
  return begin + c.size == end ? c : DecodedCodePoint{kInvalidByte, 1};
}

bool is_space(char32_t c) {
  return c != kInvalidByte && u_isUWhiteSpace(static_cast<UChar32>(c)) != 0;
}

bool is_word(char32_t c) {
  constexpr std::uint32_t kWord = U_GC_L_MASK | U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK;
  return c != kInvalidByte && (U_GET_GC_MASK(static_cast<UChar32>(c)) & kWord) != 0;
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::erase_if(tokens_, [](const AddedToken& token) { return token.content.empty(); });
  std::stable_sort(tokens_.begin(), tokens_.end(), [](const AddedToken& a, const AddedToken& b) {
    if (first_byte(a) != first_byte(b)) return first_byte(a) < first_byte(b);
    return a.content.size() > b.content.size();
  });
  std::size_t at = 0;
  for (std::size_t byte = 0; byte < 256; ++byte) {
    first_[byte] = static_cast<std::uint32_t>(at);
    while (at < tokens_.size() && first_byte(tokens_[at]) == byte) ++at;
  }
  first_[256] = static_cast<std::uint32_t>(tokens_.size());
  for (const AddedToken& token : tokens_) {
    const char begin = token.content.front();
    for (std::size_t with_special = token.special ? 1 : 0; with_special < 2; ++with_special) {
      std::string& bytes = beginnings_[with_special];
      if (bytes.empty() || bytes.back() != begin) bytes += begin;
    }
  }
}

std::size_t AddedTokenFinder::candidate(std::string_view text, std::size_t at,
                                        bool with_special) const {
  const std::string& bytes = beginnings_[with_special ? 1 : 0];
  if (bytes.size() == 1) return std::min(text.find(bytes[0], at), text.size());
  if (bytes.empty()) return text.size();
  while (at < text.size()) {
    const auto byte = static_cast<std::uint8_t>(text[at]);
    if (first_[byte] != first_[byte + 1U]) break;
    ++at;
  }
  return at;
}

bool AddedTokenFinder::fits(std::string_view text, std::size_t begin,
                            const AddedToken& token) const {
  if (!token.single_word) return true;
  const std::size_t end = begin + token.content.size();
  if (is_word(before(text, begin).value)) return false;
  return end == text.size() || !is_word(code_point_at(text, end).value);
}

AddedTokenFinder::Found AddedTokenFinder::find(std::string_view text, std::size_t from,
                                               std::size_t taken, bool with_special) const {
  for (std::size_t at = candidate(text, from, with_special); at < text.size();
       at = candidate(text, at + 1, with_special)) {
    const auto byte = static_cast<std::uint8_t>(text[at]);
    for (std::uint32_t i = first_[byte]; i < first_[byte + 1U]; ++i) {
      const AddedToken& token = tokens_[i];
      if (token.special && !with_special) continue;
      if (!text.substr(at).starts_with(token.content) || !fits(text, at, token)) continue;
      const std::size_t end = at + token.content.size();
      Found found{at, end, &token, end};
      while (token.lstrip && found.begin > taken) {
        const DecodedCodePoint c = before(text, found.begin);
        if (!is_space(c.value) || found.begin - c.size < taken) break;
        found.begin -= c.size;
      }
      while (token.rstrip && found.end < text.size()) {
        const DecodedCodePoint c = code_point_at(text, found.end);
        if (!is_space(c.value)) break;
        found.end += c.size;
      }
      return found;
    }
  }
  return {text.size(), text.size(), nullptr, text.size()};
}

}  // namespace pentatron::tokenizers
