// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/unigram_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/base/format.h"
#include "pentatron/base/sha256.h"
#include "pentatron/tokenizers/code_point_set.h"

namespace pentatron::tokenizers {

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
  if (byte_fallback_) byte_ids_ = byte_tokens();
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
  hash_tokens(hash);
  for (const double score : scores_) hash.update(fmt::format("{},", score));
  return hash.hex_digest();
}

}  // namespace pentatron::tokenizers
