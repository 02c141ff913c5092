// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "pentatron/tokenizers/borrow_pool.h"
#include "pentatron/tokenizers/bpe_merger.h"
#include "pentatron/tokenizers/byte_bpe.h"
#include "pentatron/tokenizers/word_cache.h"

namespace pentatron::tokenizers {

// Tokens by id (an id without token is empty) and ids by token.
class TokenList final {
 public:
  TokenList() = default;
  // Throws kData ("name: what") for a token that stands twice and for more than
  // BpeVocabulary::kMaxTokens.
  TokenList(std::vector<std::string> tokens, std::string_view name);

  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(tokens_.size()); }
  [[nodiscard]] const std::string& token(std::int32_t id) const {
    return tokens_[static_cast<std::size_t>(id)];
  }
  // -1 if there is none.
  [[nodiscard]] std::int32_t find(std::string_view token) const;
  [[nodiscard]] const std::vector<std::string>& tokens() const { return tokens_; }

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>()(text);
    }
  };
  std::vector<std::string> tokens_;
  std::unordered_map<std::string, std::int32_t, Hash, std::equal_to<>> ids_;
};

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

  TokenList tokens_;
};

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
