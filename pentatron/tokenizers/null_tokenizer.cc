// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/null_tokenizer.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "pentatron/base/error.h"
#include "pentatron/base/sha256.h"

namespace pentatron::tokenizers {
namespace {

constexpr std::string_view kWhiteSpace = " \t\n\v\f\r";

}  // namespace

NullTokenizer::NullTokenizer(std::int64_t vocab_size, std::optional<std::int64_t> eod_id,
                             std::optional<std::int64_t> pad_id)
    : vocab_size_(vocab_size), given_eod_(eod_id), given_pad_(pad_id) {
  PENTATRON_CHECK(
      vocab_size >= 1 && vocab_size <= std::numeric_limits<std::int32_t>::max(), kConfig,
      "NullTokenizer needs a vocabulary of 1 to 2147483647 ids, got {}: set --vocab-size",
      vocab_size);
  const std::int64_t eod = eod_id.value_or(vocab_size - 1);
  PENTATRON_CHECK(eod >= 0 && eod < vocab_size, kConfig,
                  "--null-tokenizer-eod-id must lie in [0, {}), got {}", vocab_size, eod);
  const std::int64_t pad = pad_id.value_or(-1);
  PENTATRON_CHECK(pad >= -1 && pad < vocab_size, kConfig,
                  "--null-tokenizer-pad-id must be -1 (none) or lie in [0, {}), got {}", vocab_size,
                  pad);
  eod_ = static_cast<std::int32_t>(eod);
  pad_ = static_cast<std::int32_t>(pad);
}

void NullTokenizer::do_encode(std::string_view text, std::vector<std::int32_t>& ids,
                              SpecialTokens /*special*/) const {
  const std::size_t before = ids.size();
  std::size_t begin = text.find_first_not_of(kWhiteSpace);
  while (begin != std::string_view::npos) {
    std::size_t end = text.find_first_of(kWhiteSpace, begin);
    if (end == std::string_view::npos) end = text.size();
    std::int64_t id = -1;
    const auto result = std::from_chars(text.data() + begin, text.data() + end, id);
    const bool whole = result.ec == std::errc() && result.ptr == text.data() + end;
    if (!whole || id < 0 || id >= vocab_size_) {
      ids.resize(before);
      PENTATRON_THROW(
          kData,
          "NullTokenizer expected integers in [0, {}) between white space, got '{}' at "
          "byte {} of the text: change the text, --vocab-size or --tokenizer-type",
          vocab_size_,
          replace_invalid_utf8(text.substr(begin, std::min(end - begin, std::size_t{40}))), begin);
    }
    ids.push_back(static_cast<std::int32_t>(id));
    begin = text.find_first_not_of(kWhiteSpace, end);
  }
}

std::vector<TokenSpan> NullTokenizer::spans(std::string_view text,
                                            std::span<const std::int32_t> ids) const {
  std::vector<TokenSpan> spans;
  for (std::size_t begin = text.find_first_not_of(kWhiteSpace); begin != std::string_view::npos;) {
    const std::size_t end = std::min(text.find_first_of(kWhiteSpace, begin), text.size());
    spans.push_back({.begin = begin, .end = end});
    begin = text.find_first_not_of(kWhiteSpace, end);
  }
  PENTATRON_CHECK(spans.size() == ids.size(), kData, "a text of {} integers has not {} ids",
                  spans.size(), ids.size());
  return spans;
}

std::optional<std::int32_t> NullTokenizer::token_id(std::string_view token) const {
  std::int32_t id = -1;
  const auto result = std::from_chars(token.data(), token.data() + token.size(), id);
  const bool whole = result.ec == std::errc() && result.ptr == token.data() + token.size();
  return whole && id >= 0 && id < vocab_size_ ? std::optional(id) : std::nullopt;
}

std::string NullTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  for (const std::int32_t id : ids) {
    PENTATRON_CHECK(id >= 0 && id < vocab_size_, kData,
                    "token id {} is outside the vocabulary of {} ids", id, vocab_size_);
    if (!text.empty()) text.push_back(' ');
    text += std::to_string(id);
  }
  return text;
}

TokenizerDescription NullTokenizer::description() const {
  TokenizerDescription description;
  description.class_name = kMegatronTextClass;
  description.arguments.emplace_back("vocab_size", std::to_string(vocab_size_));
  if (given_eod_) description.arguments.emplace_back("eod_id", std::to_string(*given_eod_));
  if (given_pad_) description.arguments.emplace_back("pad_id", std::to_string(*given_pad_));
  return description;
}

std::string NullTokenizer::identity_hash() const {
  return sha256_hex(fmt::format("null {} {} {}", vocab_size_, eod_, pad_));
}

}  // namespace pentatron::tokenizers
