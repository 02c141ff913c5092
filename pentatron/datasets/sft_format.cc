// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/sft_format.h"

#include <unicode/uchar.h>
#include <unicode/utf8.h>

#include <algorithm>
#include <array>

#include "pentatron/base/error.h"
#include "pentatron/base/format.h"

namespace pentatron::datasets {
namespace {

// What Python's str.strip() takes off.
bool is_python_space(UChar32 c) { return (c >= 0x1C && c <= 0x1F) || u_isUWhiteSpace(c) != 0; }

std::string stripped(std::string_view text) {
  const auto* data = reinterpret_cast<const std::uint8_t*>(text.data());
  // A text is part of a line, which is far shorter than 2^31 (LineCorpus).
  const auto size = static_cast<std::int32_t>(text.size());
  std::int32_t begin = 0;
  for (std::int32_t next = 0; next < size; begin = next) {
    UChar32 c = 0;
    U8_NEXT(data, next, size, c);
    if (!is_python_space(c)) break;
  }
  std::int32_t end = size;
  for (std::int32_t previous = size; previous > begin; end = previous) {
    UChar32 c = 0;
    U8_PREV(data, begin, previous, c);
    if (!is_python_space(c)) break;
  }
  return std::string(
      text.substr(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)));
}

std::string without(std::string text, std::string_view word) {
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at)) {
    text.erase(at, word.size());
  }
  return text;
}

std::string nemotron_h(const Turn& turn) {
  const std::string text = stripped(turn.content);
  if (turn.role == "system") return "<SPECIAL_10>System\n" + text + "\n";
  if (turn.role == "user") return "<SPECIAL_11>User\n" + text + "\n<SPECIAL_11>Assistant\n";
  return turn.role == "assistant" ? text + "\n" : "";
}

std::string nemotron_nano(const Turn& turn) {
  // Switches of the model's reasoning are no part of what is said.
  const std::string asked = stripped(without(without(turn.content, "/think"), "/no_think"));
  if (turn.role == "system") return "<SPECIAL_10>System\n" + asked + "\n";
  if (turn.role == "user") return "<SPECIAL_11>User\n" + asked + "\n";
  if (turn.role != "assistant") return "";
  return "<SPECIAL_11>Assistant\n" + stripped(turn.content) + "\n<SPECIAL_12>\n";
}

std::string identity_text(const Turn& turn) { return turn.content; }

struct Known {
  std::string_view name;
  std::string (*write)(const Turn& turn);
  std::size_t assistant_prefix;
  const char* pad;
};
constexpr std::array<Known, 3> kFormats = {{{"nemotron-h-aligned", nemotron_h, 0, "<SPECIAL_233>"},
                                            {"nemotron-nano-v2", nemotron_nano, 3, "<unk>"},
                                            {"identity", identity_text, 0, "<unk>"}}};

}  // namespace

SftFormat::SftFormat(std::string_view name, const tokenizers::Tokenizer& tokenizer)
    : name_(name), tokenizer_(tokenizer) {
  PENTATRON_CHECK(name != "default", kUnsupported,
                  "--sft-tokenizer-prompt-format default needs the tokenizer's own chat template, "
                  "a program that is not run: use nemotron-h-aligned, nemotron-nano-v2 or "
                  "identity, with conversations that hold the template's text");
  const auto found = std::ranges::find(kFormats, name, &Known::name);
  PENTATRON_CHECK(found != kFormats.end(), kConfig,
                  "--sft-tokenizer-prompt-format {}: expected nemotron-h-aligned, "
                  "nemotron-nano-v2 or identity",
                  name);
  write_ = found->write;
  assistant_prefix_ = found->assistant_prefix;
  const std::optional<std::int32_t> pad = tokenizer.token_id(found->pad);
  PENTATRON_CHECK(pad, kConfig,
                  "--sft-tokenizer-prompt-format {} pads with {}, which the tokenizer does not "
                  "have: choose another format, or a tokenizer made for it",
                  name, found->pad);
  pad_ = *pad;
}

EncodedConversation SftFormat::encode(const Conversation& conversation,
                                      std::string_view place) const {
  constexpr auto kParse = tokenizers::SpecialTokens::kParse;
  std::string text;
  for (const Turn& turn : conversation) text += write_(turn);
  EncodedConversation encoded{.tokens = tokenizer_.encode(text, kParse), .learnt = {}};
  std::string_view before;
  for (const Turn& turn : conversation) {
    const bool assistant = turn.role == "assistant";
    PENTATRON_CHECK(
        assistant || turn.role == "system" || turn.role == "user" || turn.role == "tool", kData,
        "{}: role {} is none of system, user, assistant and tool", place,
        quoted_for_message(turn.role));
    PENTATRON_CHECK(!assistant || !turn.content.empty(), kData,
                    "{}: an assistant's turn has no content", place);
    PENTATRON_CHECK(!assistant || before == "user" || before == "tool", kData,
                    "{}: an assistant's turn stands behind no user's or tool's", place);
    before = turn.role;
    const std::vector<std::int32_t> mine = tokenizer_.encode(write_(turn), kParse);
    const std::size_t at = encoded.learnt.size();
    PENTATRON_CHECK(mine.size() <= encoded.tokens.size() - at &&
                        std::equal(mine.begin(), mine.end(),
                                   encoded.tokens.begin() + static_cast<std::ptrdiff_t>(at)),
                    kData,
                    "{}: a turn of the {} has other tokens by itself than in the conversation, so "
                    "what is to be learnt cannot be told: the tokenizer joins it with its "
                    "neighbour",
                    place, turn.role);
    for (std::size_t i = 0; i < mine.size(); ++i) {
      encoded.learnt.push_back(assistant && i >= assistant_prefix_);
    }
  }
  PENTATRON_CHECK(encoded.learnt.size() == encoded.tokens.size(), kData,
                  "{}: the turns have {} tokens, the conversation {}", place, encoded.learnt.size(),
                  encoded.tokens.size());
  return encoded;
}

std::string SftFormat::identity() const { return name_ + " " + tokenizer_.identity_hash(); }

}  // namespace pentatron::datasets
