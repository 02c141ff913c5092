// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/subword_model.h"

#include <algorithm>
#include <array>
#include <limits>

#include "pentatron/base/error.h"
#include "pentatron/base/format.h"
#include "pentatron/base/sha256.h"
#include "pentatron/tokenizers/bpe_vocabulary.h"
#include "pentatron/tokenizers/code_point_set.h"

namespace pentatron::tokenizers {
namespace {

// Ids of <0x00> to <0xFF>, -1 where there is none.
std::vector<std::int32_t> fallback_ids(const TokenList& tokens) {
  std::vector<std::int32_t> ids;
  for (int byte = 0; byte < 256; ++byte)
    ids.push_back(tokens.find(fmt::format("<0x{:02X}>", byte)));
  return ids;
}

// Appends the tokens of a text's bytes; false, changing nothing, unless all of them exist.
bool append_bytes(std::string_view text, const std::vector<std::int32_t>& byte_ids,
                  std::vector<std::int32_t>& ids) {
  const auto id_of = [&](char c) { return byte_ids[static_cast<std::uint8_t>(c)]; };
  if (!std::all_of(text.begin(), text.end(), [&](char c) { return id_of(c) >= 0; })) return false;
  for (const char c : text) ids.push_back(id_of(c));
  return true;
}

void hash_tokens(Sha256& hash, const TokenList& tokens) {
  for (const std::string& token : tokens.tokens()) {
    hash.update(std::to_string(token.size()) + ":");
    hash.update(token);
  }
}

}  // namespace

TokenList::TokenList(std::vector<std::string> tokens, std::string_view name)
    : tokens_(std::move(tokens)) {
  PENTATRON_CHECK(std::ssize(tokens_) <= BpeVocabulary::kMaxTokens, kData,
                  "{}: {} tokens, at most {} are allowed", name, tokens_.size(),
                  BpeVocabulary::kMaxTokens);
  ids_.reserve(tokens_.size());
  for (std::size_t id = 0; id < tokens_.size(); ++id) {
    if (tokens_[id].empty()) continue;
    const auto [at, fresh] = ids_.emplace(tokens_[id], static_cast<std::int32_t>(id));
    PENTATRON_CHECK(fresh, kData, "{}: token {} has two ids, {} and {}", name,
                    quoted_for_message(tokens_[id]), at->second, id);
  }
}

std::int32_t TokenList::find(std::string_view token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? -1 : found->second;
}

BpeModel::BpeModel(TokenList tokens, bool byte_level, const BpeOptions& options)
    : SubwordModel(std::move(tokens)),
      byte_level_(byte_level),
      options_(options),
      merger_(merges_) {
  if (byte_level_) {
    for (int byte = 0; byte < 256; ++byte) {
      const char c = static_cast<char>(byte);
      byte_ids_.push_back(tokens_.find(std::string_view(&c, 1)));
    }
  } else if (options_.byte_fallback) {
    byte_ids_ = fallback_ids(tokens_);
  }
}

void BpeModel::check_all_bytes() const {
  for (std::size_t byte = 0; byte < byte_ids_.size(); ++byte) {
    PENTATRON_CHECK(byte_ids_[byte] >= 0, kData,
                    "the byte alphabet is not complete: no token for byte 0x{:02X}; a vocabulary "
                    "of ranks has all 256",
                    byte);
  }
}

std::unique_ptr<BpeModel> BpeModel::from_merges(
    TokenList tokens, const std::vector<std::pair<std::int32_t, std::int32_t>>& merges,
    bool byte_level, const BpeOptions& options) {
  std::unique_ptr<BpeModel> model(new BpeModel(std::move(tokens), byte_level, options));
  const TokenList& list = model->tokens_;
  model->merges_.reserve(merges.size());
  Sha256 hash;
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const auto [left, right] = merges[rank];
    PENTATRON_CHECK(std::min(left, right) >= 0 && std::max(left, right) < list.size(), kData,
                    "merge {} joins a token that is not in the vocabulary", rank);
    const std::int32_t product = list.find(list.token(left) + list.token(right));
    PENTATRON_CHECK(product >= 0, kData, "the product of merge {}, {}, is not in the vocabulary",
                    rank, quoted_for_message(list.token(left) + list.token(right)));
    const std::uint64_t pair = MergeTable::pair_key(left, right);
    PENTATRON_CHECK(model->merges_.add({pair, static_cast<std::uint32_t>(rank), product}), kData,
                    "merge {} stands twice", rank);
    hash.update(std::to_string(pair) + ",");
  }
  model->merges_hash_ = hash.hex_digest();
  model->set_merges_done();
  return model;
}

std::unique_ptr<BpeModel> BpeModel::from_ranks(TokenList tokens, std::int32_t first_id) {
  std::unique_ptr<BpeModel> model(
      new BpeModel(std::move(tokens), true, BpeOptions{.ignore_merges = true}));
  model->check_all_bytes();
  const TokenList& list = model->tokens_;
  std::vector<MergeTable::Merge> merges;
  for (auto id = first_id; id < list.size(); ++id) {
    const std::string_view token = list.token(id);
    for (std::size_t cut = 1; cut < token.size(); ++cut) {
      const std::int32_t left = list.find(token.substr(0, cut));
      const std::int32_t right = list.find(token.substr(cut));
      if (left < first_id || right < first_id) continue;
      merges.push_back({MergeTable::pair_key(left, right), static_cast<std::uint32_t>(id), id});
    }
  }
  model->merges_.reserve(merges.size());
  for (const MergeTable::Merge& merge : merges) static_cast<void>(model->merges_.add(merge));
  model->merges_hash_ = fmt::format("ranks from {}", first_id);
  model->set_merges_done();
  return model;
}

void BpeModel::set_merges_done() {
  // The fast path knows nothing unknown.
  if (!byte_level_ || std::ranges::find(byte_ids_, -1) != byte_ids_.end()) return;
  std::array<std::int32_t, 256> ids{};
  std::copy(byte_ids_.begin(), byte_ids_.end(), ids.begin());
  byte_bpe_ = std::make_unique<ByteBpe>(tokens_.tokens(), ids, merges_, options_.ignore_merges);
}

void BpeModel::symbols_of(std::string_view word, std::vector<std::int32_t>& symbols) const {
  symbols.reserve(word.size());
  bool unknown_before = false;
  const auto add_unknown = [&] {
    if (options_.unknown < 0) return;
    if (!unknown_before || !options_.fuse_unknown) symbols.push_back(options_.unknown);
    unknown_before = true;
  };
  if (byte_level_) {
    // Published vocabularies leave out bytes that no text of theirs had (SmolLM's: 21).
    for (const char c : word) {
      const std::int32_t id = byte_ids_[static_cast<std::uint8_t>(c)];
      if (id < 0) {
        add_unknown();
        continue;
      }
      symbols.push_back(id);
      unknown_before = false;
    }
    return;
  }
  for (std::size_t at = 0; at < word.size();) {
    const std::string_view character = word.substr(at, code_point_at(word, at).size);
    at += character.size();
    const std::int32_t id = tokens_.find(character);
    if (id >= 0) {
      symbols.push_back(id);
    } else if (options_.byte_fallback && append_bytes(character, byte_ids_, symbols)) {
      unknown_before = false;
      continue;
    } else if (options_.unknown >= 0) {
      add_unknown();
      continue;
    }
    unknown_before = false;
  }
}

void BpeModel::merge_characters(std::string_view word, std::vector<std::int32_t>& symbols) const {
  const std::int32_t whole = options_.ignore_merges ? tokens_.find(word) : -1;
  if (whole >= 0) {
    symbols.push_back(whole);
    return;
  }
  symbols_of(word, symbols);
  BpeWork work;
  if (!symbols.empty()) merger_.merge(symbols, work);
}

void BpeModel::encode(std::string_view word, std::vector<std::int32_t>& ids) const {
  if (byte_bpe_ != nullptr) return byte_bpe_->encode_word(word, ids);
  std::vector<std::int32_t> symbols;
  if (word.size() > WordCache::kShortBytes) {
    merge_characters(word, symbols);
    ids.insert(ids.end(), symbols.begin(), symbols.end());
    return;
  }
  const auto cache = caches_.borrow([] { return std::make_unique<WordCache>(kCacheSlots); });
  const WordCache::Key key = WordCache::key_of(word.data(), word.size(), word.size());
  const std::uint64_t hash = WordCache::hash_of(key);
  std::array<std::int32_t, WordCache::kShortBytes + WordCache::kPadding> known{};
  const std::size_t count = (*cache).recall_short(key, hash, known.data());
  if (count == 0) {
    merge_characters(word, symbols);
    if (!symbols.empty()) (*cache).remember_short(key, hash, symbols);
  }
  ids.insert(ids.end(), symbols.begin(), symbols.end());
  ids.insert(ids.end(), known.begin(), known.begin() + static_cast<std::ptrdiff_t>(count));
}

std::size_t BpeModel::symbol_size(std::string_view word, std::size_t at) const {
  return byte_level_ ? 1 : code_point_at(word, at).size;
}

bool BpeModel::is_unknown(std::string_view symbol) const {
  if (byte_level_) return byte_ids_[static_cast<std::uint8_t>(symbol.front())] < 0;
  return tokens_.find(symbol) < 0;
}

// Bytes of the word at `at` that the token stands for.
std::size_t BpeModel::piece_size(std::string_view word, std::size_t at, std::int32_t id) const {
  const std::string& token = tokens_.token(id);
  if (at >= word.size() || word.substr(at).starts_with(token)) return token.size();
  if (!byte_level_ && std::ranges::find(byte_ids_, id) != byte_ids_.end()) return 1;
  if (id != options_.unknown) return token.size();
  std::size_t size = symbol_size(word, at);
  while (options_.fuse_unknown && at + size < word.size()) {
    const std::size_t next = symbol_size(word, at + size);
    if (!is_unknown(word.substr(at + size, next))) break;
    size += next;
  }
  return size;
}

// Tokens stand for bytes one after the other. Characters that are left out shift what follows, as
// in the reference library.
void BpeModel::encode_pieces(std::string_view word, std::vector<PlacedToken>& pieces) const {
  std::vector<std::int32_t> ids;
  encode(word, ids);
  std::size_t at = 0;
  for (const std::int32_t id : ids) {
    const std::size_t end = std::min(at + piece_size(word, at, id), word.size());
    pieces.push_back({.id = id, .begin = at, .end = end});
    at = end;
  }
}

std::string BpeModel::identity_hash() const {
  Sha256 hash;
  hash.update(fmt::format("bpe {} {} {} {} {}\n", byte_level_, options_.ignore_merges,
                          options_.byte_fallback, options_.fuse_unknown, options_.unknown));
  hash_tokens(hash, tokens_);
  hash.update(merges_hash_);
  return hash.hex_digest();
}

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
  hash_tokens(hash, tokens_);
  return hash.hex_digest();
}

UnigramModel::UnigramModel(TokenList tokens, std::vector<double> scores, std::int32_t unknown,
                           bool byte_fallback)
    : SubwordModel(std::move(tokens)),
      scores_(std::move(scores)),
      unknown_(unknown),
      byte_fallback_(byte_fallback) {
  PENTATRON_CHECK(scores_.size() == tokens_.tokens().size() && !scores_.empty(), kInternal,
                  "{} scores for {} tokens", scores_.size(), tokens_.size());
  constexpr double kUnknownPenalty = 10.0;
  unknown_score_ = *std::min_element(scores_.begin(), scores_.end()) - kUnknownPenalty;
  if (byte_fallback_) byte_ids_ = fallback_ids(tokens_);
  build_trie();
}

void UnigramModel::build_trie() {
  std::vector<std::pair<std::string_view, std::int32_t>> sorted;
  for (std::int32_t id = 0; id < tokens_.size(); ++id) {
    if (!tokens_.token(id).empty()) sorted.emplace_back(tokens_.token(id), id);
  }
  std::sort(sorted.begin(), sorted.end());
  // Breadth first, so that a node's children lie side by side: each entry is a range of sorted
  // tokens that share the node's bytes.
  struct Range {
    std::size_t begin;
    std::size_t end;
    std::size_t depth;
  };
  std::vector<Range> ranges{{0, sorted.size(), 0}};
  trie_.emplace_back();
  for (std::size_t node = 0; node < ranges.size(); ++node) {
    auto [begin, end, depth] = ranges[node];
    if (begin < end && sorted[begin].first.size() == depth) {
      trie_[node].token = sorted[begin].second;
      ++begin;
    }
    trie_[node].first_child = static_cast<std::uint32_t>(trie_.size());
    while (begin < end) {
      const char byte = sorted[begin].first[depth];
      std::size_t next = begin;
      while (next < end && sorted[next].first[depth] == byte) ++next;
      trie_.push_back({.byte = static_cast<std::uint8_t>(byte)});
      ranges.push_back({begin, next, depth + 1});
      begin = next;
    }
    trie_[node].num_children = static_cast<std::uint32_t>(trie_.size()) - trie_[node].first_child;
  }
}

std::uint32_t UnigramModel::child(std::uint32_t node, std::uint8_t byte) const {
  const auto first = trie_.begin() + trie_[node].first_child;
  const auto last = first + trie_[node].num_children;
  const auto found = std::lower_bound(
      first, last, byte, [](const TrieNode& a, std::uint8_t value) { return a.byte < value; });
  return found != last && found->byte == byte ? static_cast<std::uint32_t>(found - trie_.begin())
                                              : 0;
}

void UnigramModel::append_unknown(std::string_view text, std::vector<std::int32_t>& ids) const {
  const std::int32_t known = tokens_.find(text);
  if (known >= 0) {
    ids.push_back(known);
  } else if (!byte_fallback_ || !append_bytes(text, byte_ids_, ids)) {
    PENTATRON_CHECK(unknown_ >= 0, kData, "the vocabulary has no token for {} and no unknown token",
                    quoted_for_message(std::string(text.substr(0, 40))));
    ids.push_back(unknown_);
  }
}

template <typename Piece>
void UnigramModel::segment(std::string_view word, Piece piece) const {
  struct Best {
    double score = -std::numeric_limits<double>::infinity();
    std::size_t begin = 0;
    std::int32_t id = -1;  // -1: not reached; kUnknownPiece: an unknown character
  };
  constexpr std::int32_t kUnknownPiece = -2;
  std::vector<Best> best(word.size() + 1);
  best[0].score = 0;
  const auto offer = [&](std::size_t begin, std::size_t end, double score, std::int32_t id) {
    Best& at = best[end];
    if (at.id == -1 || score > at.score) at = {score, begin, id};
  };
  for (std::size_t begin = 0; begin < word.size();) {
    const std::size_t character = code_point_at(word, begin).size;
    bool alone = false;
    std::uint32_t node = 0;
    for (std::size_t end = begin; end < word.size();) {
      node = child(node, static_cast<std::uint8_t>(word[end++]));
      if (node == 0) break;
      const std::int32_t id = trie_[node].token;
      if (id < 0) continue;
      offer(begin, end, best[begin].score + scores_[static_cast<std::size_t>(id)], id);
      alone = alone || end - begin == character;
    }
    if (!alone) {
      offer(begin, begin + character, best[begin].score + unknown_score_, kUnknownPiece);
    }
    begin += character;
  }
  std::vector<std::pair<std::size_t, std::int32_t>> pieces;  // where each ends, its token
  for (std::size_t end = word.size(); end > 0; end = best[end].begin) {
    pieces.emplace_back(end, best[end].id);
  }
  std::size_t begin = 0;
  for (std::size_t i = pieces.size(); i-- > 0;) {
    auto [end, id] = pieces[i];
    if (id == kUnknownPiece || id == unknown_) {
      // Neighbouring unknown characters are one piece.
      while (i > 0 && (pieces[i - 1].second == kUnknownPiece || pieces[i - 1].second == unknown_)) {
        end = pieces[--i].first;
      }
      piece(begin, end, kUnknownPiece);
    } else {
      piece(begin, end, id);
    }
    begin = end;
  }
}

void UnigramModel::encode(std::string_view word, std::vector<std::int32_t>& ids) const {
  segment(word, [&](std::size_t begin, std::size_t end, std::int32_t id) {
    if (id < 0) {
      append_unknown(word.substr(begin, end - begin), ids);
    } else {
      ids.push_back(id);
    }
  });
}

void UnigramModel::encode_pieces(std::string_view word, std::vector<PlacedToken>& pieces) const {
  segment(word, [&](std::size_t begin, std::size_t end, std::int32_t id) {
    std::vector<std::int32_t> ids{id};
    if (id < 0) {
      ids.clear();
      append_unknown(word.substr(begin, end - begin), ids);
    }
    for (const std::int32_t one : ids) pieces.push_back({.id = one, .begin = begin, .end = end});
  });
}

std::string UnigramModel::identity_hash() const {
  Sha256 hash;
  hash.update(fmt::format("unigram {} {}\n", unknown_, byte_fallback_));
  hash_tokens(hash, tokens_);
  for (const double score : scores_) hash.update(fmt::format("{},", score));
  return hash.hex_digest();
}

}  // namespace pentatron::tokenizers
