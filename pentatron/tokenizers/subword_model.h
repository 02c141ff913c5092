// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pentatron/base/sha256.h"
#include "pentatron/tokenizers/token_list.h"

namespace pentatron::tokenizers {

class ByteBpe;

// A token of a word, and which bytes of the word it stands for.
struct PlacedToken {
  std::int32_t id = 0;
  std::size_t begin = 0;
  std::size_t end = 0;
};

// The model of a tokenizer.json: ids of one word. Const methods may be called by several threads.
class SubwordModel {
 public:
  virtual ~SubwordModel() = default;
  // Appends the ids of `word`, which is not empty. Throws kData where the word has none.
  virtual void encode(std::string_view word, std::vector<std::int32_t>& ids) const = 0;
  // The same with the bytes of each; those of one character that became several tokens are all
  // theirs. Not as fast.
  virtual void encode_pieces(std::string_view word, std::vector<PlacedToken>& pieces) const = 0;
  // SHA-256 over all that decides the ids.
  [[nodiscard]] virtual std::string identity_hash() const = 0;
  [[nodiscard]] const TokenList& tokens() const { return tokens_; }
  // The fast path of whole texts, where the model is byte-level BPE; else nullptr.
  [[nodiscard]] virtual const ByteBpe* byte_bpe() const { return nullptr; }

 protected:
  explicit SubwordModel(TokenList tokens) : tokens_(std::move(tokens)) {}

  // Ids of the tokens <0x00> to <0xFF>; -1: none.
  [[nodiscard]] std::vector<std::int32_t> byte_tokens() const;
  // Appends what byte_tokens() has for each byte; false, and nothing, when one of them is missing.
  [[nodiscard]] static bool append_bytes(std::string_view text,
                                         const std::vector<std::int32_t>& byte_ids,
                                         std::vector<std::int32_t>& ids);
  void hash_tokens(Sha256& hash) const;

  TokenList tokens_;
};

}  // namespace pentatron::tokenizers
