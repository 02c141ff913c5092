// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pentatron/tokenizers/borrow_pool.h"
#include "pentatron/tokenizers/bpe_merger.h"
#include "pentatron/tokenizers/byte_bpe.h"
#include "pentatron/tokenizers/subword_model.h"
#include "pentatron/tokenizers/word_cache.h"

namespace pentatron::tokenizers {

// What a BPE model does with characters that it has no token for.
struct BpeOptions {
  bool ignore_merges = false;  // a word that is a token is that token
  bool byte_fallback = false;  // a character becomes the tokens <0x00> to <0xFF> of its bytes
  bool fuse_unknown = false;   // several unknown characters in a row are one unknown token
  std::int32_t unknown = -1;   // -1: what has no token is left out
};

// Byte-pair encoding. Byte level: tokens are raw bytes and the smallest symbols are bytes; else
// they are characters.
class BpeModel final : public SubwordModel {
 public:
  // Pairs of ids in order of rank. kData for a pair whose product is no token.
  [[nodiscard]] static std::unique_ptr<BpeModel> from_merges(
      TokenList tokens, const std::vector<std::pair<std::int32_t, std::int32_t>>& merges,
      bool byte_level, const BpeOptions& options);
  // Byte level without a list of merges: two neighbours merge if their joined bytes are a token,
  // the one of lowest id first (tiktoken's way). Ids below `first_id` are no tokens of text. kData
  // unless all 256 bytes are tokens.
  [[nodiscard]] static std::unique_ptr<BpeModel> from_ranks(TokenList tokens,
                                                            std::int32_t first_id);

  void encode(std::string_view word, std::vector<std::int32_t>& ids) const override;
  void encode_pieces(std::string_view word, std::vector<PlacedToken>& pieces) const override;
  [[nodiscard]] std::string identity_hash() const override;
  [[nodiscard]] const ByteBpe* byte_bpe() const override { return byte_bpe_.get(); }

 private:
  static constexpr std::size_t kCacheSlots = 1 << 14;  // of words of characters

  BpeModel(TokenList tokens, bool byte_level, const BpeOptions& options);
  void check_all_bytes() const;
  void set_merges_done();
  void merge_characters(std::string_view word, std::vector<std::int32_t>& symbols) const;
  void symbols_of(std::string_view word, std::vector<std::int32_t>& symbols) const;
  [[nodiscard]] std::size_t symbol_size(std::string_view word, std::size_t at) const;
  [[nodiscard]] bool is_unknown(std::string_view symbol) const;
  [[nodiscard]] std::size_t piece_size(std::string_view word, std::size_t at,
                                       std::int32_t id) const;

  bool byte_level_;
  BpeOptions options_;
  std::vector<std::int32_t> byte_ids_;  // of byte-level bytes, or of <0xNN>; -1: none
  MergeTable merges_;
  std::string merges_hash_;
  BpeMerger merger_;
  std::unique_ptr<ByteBpe> byte_bpe_;  // byte level
  BorrowPool<WordCache> caches_;       // else
};

}  // namespace pentatron::tokenizers
