// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/tokenizer.h"

#include <unicode/utf8.h>

#include <nlohmann/json.hpp>

#include "pentatron/base/error.h"

namespace pentatron::tokenizers {
namespace {

// Python's json.dumps escapes all but printable ASCII.
std::string quoted(const std::string& text) {
  return nlohmann::json(replace_invalid_utf8(text)).dump(-1, ' ', /*ensure_ascii=*/true);
}

constexpr std::string_view kWhiteSpace = " \t\n\v\f\r";

}  // namespace

std::string description_json(const TokenizerDescription& description, int depth) {
  const std::string inner(static_cast<std::size_t>(4 * (depth + 1)), ' ');
  std::string json = "{\n" + inner + "\"class\": " + quoted(description.class_name);
  json += ",\n" + inner + "\"tokenizer_path\": " +
          (description.tokenizer_path ? quoted(*description.tokenizer_path) : "null");
  for (const auto& [name, value] : description.arguments) {
    json += ",\n" + inner + quoted(name) + ": " + quoted(value);
  }
  json += "\n" + std::string(static_cast<std::size_t>(4 * depth), ' ') + "}";
  return json;
}

std::string replace_invalid_utf8(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());
  const auto size = static_cast<std::int64_t>(bytes.size());
  for (std::int64_t i = 0; i < size;) {
    const std::int64_t start = i;
    UChar32 code_point = 0;
    U8_NEXT(data, i, size, code_point);
    if (code_point < 0) {
      text += "\xEF\xBF\xBD";
    } else {
      text.append(
          bytes.substr(static_cast<std::size_t>(start), static_cast<std::size_t>(i - start)));
    }
  }
  return text;
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, SpecialTokens special) const {
  std::vector<std::int32_t> ids;
  ids.reserve(text.size() / 4 + 1);
  do_encode(text, ids, special);
  return ids;
}

void Tokenizer::encode_append(std::string_view text, std::vector<std::int32_t>& ids,
                              SpecialTokens special) const {
  do_encode(text, ids, special);
}

std::vector<TokenSpan> Tokenizer::spans(std::string_view text,
                                        std::span<const std::int32_t> ids) const {
  PENTATRON_CHECK(decodes_apart(), kUnsupported,
                  "this tokenizer changes the text before it encodes it: it cannot tell where a "
                  "token stands");
  std::vector<TokenSpan> spans;
  std::size_t at = 0;
  for (const std::int32_t id : ids) {
    const std::string token = decode({&id, 1});
    std::size_t begin = at;
    // A special token may take the white space beside it.
    const bool beside = is_special(id) || (!spans.empty() && is_special(ids[spans.size() - 1]));
    if (beside && text.compare(begin, token.size(), token) != 0) {
      begin = std::min(text.find_first_not_of(kWhiteSpace, at), text.size());
    }
    if (text.compare(begin, token.size(), token) == 0) {
      spans.push_back({.begin = begin, .end = begin + token.size()});
      at = begin + token.size();
      continue;
    }
    // What is not there was added around the text.
    PENTATRON_CHECK(is_special(id), kData, "token {} does not stand at byte {} of the text", id,
                    at);
    spans.push_back({.begin = at, .end = at});
  }
  PENTATRON_CHECK(text.find_first_not_of(kWhiteSpace, at) == std::string_view::npos, kData,
                  "the ids end at byte {} of a text of {}", at, text.size());
  return spans;
}

std::string Tokenizer::decode_utf8(std::span<const std::int32_t> ids) const {
  return replace_invalid_utf8(decode(ids));
}

}  // namespace pentatron::tokenizers
