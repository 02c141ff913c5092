// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "pentatron/tokenizers/subword_model.h"

namespace pentatron::tokenizers {

// Greedy longest match from the left (BERT). A word of more than `max_characters`, or without an
// encoding, is the unknown token.
class WordPieceModel final : public SubwordModel {
 public:
  WordPieceModel(TokenList tokens, std::string prefix, std::int32_t unknown,
                 std::size_t max_characters);
  void encode(std::string_view word, std::vector<std::int32_t>& ids) const override;
  void encode_pieces(std::string_view word, std::vector<PlacedToken>& pieces) const override;
  [[nodiscard]] std::string identity_hash() const override;

 private:
  std::string prefix_;
  std::int32_t unknown_;
  std::size_t max_characters_;
  std::size_t longest_ = 0;
};

}  // namespace pentatron::tokenizers
