// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/bpe_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/base/format.h"
#include "pentatron/base/sha256.h"
#include "pentatron/tokenizers/code_point_set.h"

namespace pentatron::tokenizers {

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
    byte_ids_ = byte_tokens();
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
  hash_tokens(hash);
  hash.update(merges_hash_);
  return hash.hex_digest();
}

}  // namespace pentatron::tokenizers
