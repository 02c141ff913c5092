// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pentatron/datasets/conversation.h"
#include "pentatron/tokenizers/chat_template.h"
#include "pentatron/tokenizers/tokenizer.h"

namespace pentatron::datasets {

// A conversation as tokens, and which of them are to be learnt.
struct EncodedConversation {
  std::vector<std::int32_t> tokens;
  std::vector<bool> learnt;  // tokens of the assistant's turns, without what announces them
  bool raw = false;          // a raw text: all is learnt, tokens that pad too
};

// Prompt formats of Megatron's SFTTokenizer (--sft-tokenizer-prompt-format), equal to its templates
// character for character: nemotron-h-aligned, nemotron-nano-v2 and identity; and default, the
// tokenizer's own chat template. Special tokens in the texts are read as such, as there. With
// default, what the assistant says is found by rendering the conversation up to each of its turns;
// Megatron learns all tokens there. Const methods may be called from several threads.
class SftFormat final {
 public:
  // `tokenizer` must outlive it. kConfig for another name, for a tokenizer without the format's
  // padding token and for default without a template.
  SftFormat(std::string_view name, const tokenizers::Tokenizer& tokenizer,
            std::optional<tokenizers::ModelChatTemplate> own_template = std::nullopt);

  // A raw text is its tokens and the one that ends documents, as Megatron reads it.
  // Errors: kData, beginning with `place`: a tokenizer without such a token; a role that the format
  // does not know, an assistant's turn without content or not behind a user's or a tool's, and a
  // turn that has other tokens by itself than in the whole (which then could not be told apart);
  // with default what the template refuses, and one that writes what came before a turn in another
  // way once the turn is there.
  [[nodiscard]] EncodedConversation encode(const Conversation& conversation,
                                           std::string_view place) const;

  [[nodiscard]] std::int32_t pad() const { return pad_; }
  // Whether the padding token also ends texts, and so is learnt where a conversation holds it: with
  // default, of a tokenizer that has no token of its own for padding.
  [[nodiscard]] bool learns_pad() const { return learns_pad_; }
  // A text that differs when encode() may.
  [[nodiscard]] std::string identity() const;

 private:
  using Writer = std::string (*)(const Turn& turn);

  [[nodiscard]] EncodedConversation encode_raw(std::string_view text, std::string_view place) const;
  [[nodiscard]] EncodedConversation encode_by_template(const Conversation& conversation,
                                                       std::string_view place) const;

  std::string name_;
  const tokenizers::Tokenizer& tokenizer_;
  Writer write_ = nullptr;
  std::size_t assistant_prefix_ = 0;  // tokens
  std::int32_t pad_ = -1;
  bool learns_pad_ = false;
  std::optional<tokenizers::ModelChatTemplate> own_template_;  // of default
  std::string template_identity_;
};

}  // namespace pentatron::datasets
