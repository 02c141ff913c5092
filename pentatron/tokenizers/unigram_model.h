// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "pentatron/tokenizers/subword_model.h"

namespace pentatron::tokenizers {

// Unigram language model: the segmentation of the highest sum of scores (Viterbi). A character
// without a token costs the lowest score minus 10.
class UnigramModel final : public SubwordModel {
 public:
  UnigramModel(TokenList tokens, std::vector<double> scores, std::int32_t unknown,
               bool byte_fallback);
  void encode(std::string_view word, std::vector<std::int32_t>& ids) const override;
  void encode_pieces(std::string_view word, std::vector<PlacedToken>& pieces) const override;
  [[nodiscard]] std::string identity_hash() const override;

 private:
  // A trie over bytes in arrays: children of a node are sorted by byte.
  struct TrieNode {
    std::int32_t token = -1;
    std::uint32_t first_child = 0;
    std::uint32_t num_children = 0;
    std::uint8_t byte = 0;
  };
  void build_trie();
  [[nodiscard]] std::uint32_t child(std::uint32_t node, std::uint8_t byte) const;
  void append_unknown(std::string_view text, std::vector<std::int32_t>& ids) const;
  // Calls piece(begin, end, token) for each piece in order; an unknown one has a token below 0.
  template <typename Piece>
  void segment(std::string_view word, Piece piece) const;

  std::vector<double> scores_;
  std::int32_t unknown_;
  bool byte_fallback_;
  double unknown_score_ = 0;
  std::vector<std::int32_t> byte_ids_;
  std::vector<TrieNode> trie_;
};

}  // namespace pentatron::tokenizers
