// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/word_piece_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "pentatron/base/sha256.h"
#include "pentatron/tokenizers/code_point_set.h"

namespace pentatron::tokenizers {

WordPieceModel::WordPieceModel(TokenList tokens, std::string prefix, std::int32_t unknown,
                               std::size_t max_characters)
    : SubwordModel(std::move(tokens)),
      prefix_(std::move(prefix)),
      unknown_(unknown),
      max_characters_(max_characters) {
  for (const std::string& token : tokens_.tokens()) longest_ = std::max(longest_, token.size());
}

void WordPieceModel::encode(std::string_view word, std::vector<std::int32_t>& ids) const {
  std::vector<std::size_t> borders{0};
  for (std::size_t at = 0; at < word.size();) {
    at += code_point_at(word, at).size;
    borders.push_back(at);
    if (borders.size() - 1 > max_characters_) {
      ids.push_back(unknown_);
      return;
    }
  }
  const std::size_t before = ids.size();
  std::string piece;
  for (std::size_t begin = 0; begin + 1 < borders.size();) {
    std::size_t end = borders.size() - 1;
    std::int32_t id = -1;
    for (; end > begin; --end) {
      const std::size_t size = borders[end] - borders[begin];
      if (size > longest_) continue;
      piece = begin > 0 ? prefix_ : std::string();
      piece += word.substr(borders[begin], size);
      id = tokens_.find(piece);
      if (id >= 0) break;
    }
    if (id < 0) {
      ids.resize(before);
      ids.push_back(unknown_);
      return;
    }
    ids.push_back(id);
    begin = end;
  }
}

void WordPieceModel::encode_pieces(std::string_view word, std::vector<PlacedToken>& pieces) const {
  std::vector<std::int32_t> ids;
  encode(word, ids);
  if (ids.size() == 1) {  // the word itself, or unknown
    pieces.push_back({.id = ids.front(), .begin = 0, .end = word.size()});
    return;
  }
  std::size_t at = 0;
  for (const std::int32_t id : ids) {
    const std::size_t size = tokens_.token(id).size() - (at > 0 ? prefix_.size() : 0);
    pieces.push_back({.id = id, .begin = at, .end = at + size});
    at += size;
  }
}

std::string WordPieceModel::identity_hash() const {
  Sha256 hash;
  hash.update(fmt::format("wordpiece {} {} {}\n", prefix_, unknown_, max_characters_));
  hash_tokens(hash);
  return hash.hex_digest();
}

}  // namespace pentatron::tokenizers
