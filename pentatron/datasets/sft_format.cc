// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/sft_format.h"

#include <unicode/uchar.h>
#include <unicode/utf8.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

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
constexpr std::string_view kDefault = "default";
constexpr std::array<Known, 3> kFormats = {{{"nemotron-h-aligned", nemotron_h, 0, "<SPECIAL_233>"},
                                            {"nemotron-nano-v2", nemotron_nano, 3, "<unk>"},
                                            {"identity", identity_text, 0, "<unk>"}}};

void check_turn(const Turn& turn, std::string_view before, std::string_view place) {
  const bool assistant = turn.role == "assistant";
  PENTATRON_CHECK(assistant || turn.role == "system" || turn.role == "user" || turn.role == "tool",
                  kData, "{}: role {} is none of system, user, assistant and tool", place,
                  quoted_for_message(turn.role));
  PENTATRON_CHECK(!assistant || !turn.content.empty(), kData,
                  "{}: an assistant's turn has no content", place);
  PENTATRON_CHECK(!assistant || before == "user" || before == "tool", kData,
                  "{}: an assistant's turn stands behind no user's or tool's", place);
}

template <typename Sequence>
std::size_t common_begin(const Sequence& a, const Sequence& b) {
  return static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

}  // namespace

SftFormat::SftFormat(std::string_view name, const tokenizers::Tokenizer& tokenizer,
                     std::optional<tokenizers::ModelChatTemplate> own_template)
    : name_(name), tokenizer_(tokenizer), own_template_(std::move(own_template)) {
  if (name == kDefault) {
    PENTATRON_CHECK(own_template_, kConfig,
                    "--sft-tokenizer-prompt-format default is the chat template of the tokenizer, "
                    "and --tokenizer-model has none (chat_template.jinja, or chat_template in "
                    "tokenizer_config.json): choose another format");
    tokenizers::ChatOptions& options = own_template_->options;
    const auto id_of = [&tokenizer](const std::string& token) {
      return token.empty() ? std::nullopt : tokenizer.token_id(token);
    };
    const std::optional<std::int32_t> own_pad = id_of(options.pad_token);
    const std::int32_t end = id_of(options.eos_token).value_or(tokenizer.eod());
    pad_ = own_pad.value_or(end);
    learns_pad_ = pad_ == end;
    PENTATRON_CHECK(pad_ >= 0, kConfig,
                    "--sft-tokenizer-prompt-format default pads with the tokenizer's pad_token or "
                    "eos_token, and it has neither");
    options.now = 0;  // one text, whenever it is read
    template_identity_ = " " + own_template_->chat_template.identity();
    for (const std::string* token :
         {&options.bos_token, &options.eos_token, &options.pad_token, &options.unk_token}) {
      template_identity_ += " " + *token;
    }
    return;
  }
  const auto found = std::ranges::find(kFormats, name, &Known::name);
  PENTATRON_CHECK(found != kFormats.end(), kConfig,
                  "--sft-tokenizer-prompt-format {}: expected nemotron-h-aligned, "
                  "nemotron-nano-v2, identity or default",
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
  if (is_raw_text(conversation)) return encode_raw(conversation[0].content, place);
  if (name_ == kDefault) return encode_by_template(conversation, place);
  constexpr auto kParse = tokenizers::SpecialTokens::kParse;
  std::string text;
  for (const Turn& turn : conversation) text += write_(turn);
  EncodedConversation encoded{.tokens = tokenizer_.encode(text, kParse), .learnt = {}};
  std::string_view before;
  for (const Turn& turn : conversation) {
    const bool assistant = turn.role == "assistant";
    check_turn(turn, before, place);
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

EncodedConversation SftFormat::encode_raw(std::string_view text, std::string_view place) const {
  const std::int32_t end = tokenizer_.eod();
  PENTATRON_CHECK(
      end >= 0, kData,
      "{}: \"text\" is raw text, behind which the token stands that ends documents, and "
      "the tokenizer has none: give it an eos_token, or write the line as \"messages\"",
      place);
  EncodedConversation encoded{.tokens = tokenizer_.encode(text, tokenizers::SpecialTokens::kParse),
                              .learnt = {}};
  if (encoded.tokens.empty() || encoded.tokens.back() != end) encoded.tokens.push_back(end);
  encoded.learnt.resize(encoded.tokens.size(), true);
  encoded.raw = true;
  return encoded;
}

// A turn of the assistant is what stands between the conversation before it, which ends by
// announcing it, and the conversation up to it. Where a token reaches over the first border, it is
// learnt; over the second, it is not.
EncodedConversation SftFormat::encode_by_template(const Conversation& conversation,
                                                  std::string_view place) const {
  constexpr auto kParse = tokenizers::SpecialTokens::kParse;
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  const auto rendered = [&](bool announce) {
    tokenizers::ChatOptions options = own_template_->options;
    options.add_generation_prompt = announce;
    try {
      return own_template_->chat_template.render(messages, nlohmann::ordered_json::object(),
                                                 options);
    } catch (const Error& error) {
      PENTATRON_THROW(kData, "{}: {}", place, error.what());
    }
  };
  struct Turns {
    std::string before, through;
  };
  std::vector<Turns> assistant;
  std::string_view role;
  for (const Turn& turn : conversation) {
    check_turn(turn, role, place);
    role = turn.role;
    std::string before;
    if (turn.role == "assistant") before = rendered(true);
    messages.push_back({{"role", turn.role}, {"content", turn.content}});
    if (turn.role == "assistant") assistant.push_back({std::move(before), rendered(false)});
  }
  const std::string text = rendered(false);
  EncodedConversation encoded{.tokens = tokenizer_.encode(text, kParse), .learnt = {}};
  encoded.learnt.resize(encoded.tokens.size(), false);
  for (const auto& [before, through] : assistant) {
    PENTATRON_CHECK(text.starts_with(through) && through.starts_with(before), kData,
                    "{}: the chat template writes what came before a turn of the assistant in "
                    "another way once the turn is there, so what is to be learnt cannot be told: "
                    "choose another --sft-tokenizer-prompt-format",
                    place);
    const std::size_t begin = common_begin(tokenizer_.encode(before, kParse), encoded.tokens);
    const std::size_t end = common_begin(tokenizer_.encode(through, kParse), encoded.tokens);
    for (std::size_t i = begin; i < end; ++i) encoded.learnt[i] = true;
  }
  return encoded;
}

std::string SftFormat::identity() const {
  return name_ + " " + tokenizer_.identity_hash() + template_identity_;
}

}  // namespace pentatron::datasets
