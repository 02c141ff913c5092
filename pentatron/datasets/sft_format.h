// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "pentatron/datasets/conversation.h"
#include "pentatron/tokenizers/tokenizer.h"

namespace pentatron::datasets {

// A conversation as tokens, and which of them are to be learnt.
struct EncodedConversation {
  std::vector<std::int32_t> tokens;
  std::vector<bool> learnt;  // tokens of the assistant's turns, without what announces them
};

// Prompt formats of Megatron's SFTTokenizer (--sft-tokenizer-prompt-format), equal to its templates
// character for character: nemotron-h-aligned, nemotron-nano-v2 and identity. Special tokens in the
// texts are read as such, as there. Const methods may be called from several threads.
class SftFormat final {
 public:
  // `tokenizer` must outlive it. kUnsupported for "default", the tokenizer's own template; kConfig
  // for another name, and for a tokenizer without the format's padding token.
  SftFormat(std::string_view name, const tokenizers::Tokenizer& tokenizer);

  // Errors: kData, beginning with `place`: a role that the format does not know, an assistant's
  // turn without content or not behind a user's or a tool's, and a turn that has other tokens by
  // itself than in the whole (which then could not be told apart).
  [[nodiscard]] EncodedConversation encode(const Conversation& conversation,
                                           std::string_view place) const;

  [[nodiscard]] std::int32_t pad() const { return pad_; }
  // A text that differs when encode() may.
  [[nodiscard]] std::string identity() const;

 private:
  using Writer = std::string (*)(const Turn& turn);

  std::string name_;
  const tokenizers::Tokenizer& tokenizer_;
  Writer write_ = nullptr;
  std::size_t assistant_prefix_ = 0;  // tokens
  std::int32_t pad_ = -1;
};

}  // namespace pentatron::datasets
