// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/tokenizers/staged_tokenizer.h"

// Where tokens stand in the text: encode() once more, with the origin of every byte.
namespace pentatron::tokenizers {
namespace {

// Calls token(its id, begin, end) and piece(begin, end) for what a finder finds and what lies
// between, in order.
template <typename Token, typename Piece>
void for_each_part(const AddedTokenFinder& finder, std::string_view text, bool with_special,
                   Token token, Piece piece) {
  std::size_t taken = 0;
  for (std::size_t at = 0; at < text.size() || taken < text.size();) {
    const AddedTokenFinder::Found found = finder.find(text, at, taken, with_special);
    if (found.begin > taken) piece(taken, found.begin);
    if (found.token == nullptr) break;
    // One that lies in spaces which the token before it took has them, too.
    token(found.token->id, found.begin, found.end);
    taken = std::max(taken, found.end);
    at = found.next;
  }
}

}  // namespace

std::vector<TokenSpan> StagedTokenizer::spans(std::string_view text,
                                              std::span<const std::int32_t> ids) const {
  if (stages_.normalizer == nullptr && decodes_apart() && stages_.model->byte_bpe() != nullptr) {
    // Mostly the tokens are the text, byte for byte.
    try {
      return Tokenizer::spans(text, ids);
    } catch (const Error& error) {
      // A pre-tokeniser may have put in a space, or left something out.
      if (error.kind() != ErrorKind::kData) throw;
    }
  }
  for (const bool with_special : {false, true}) {
    Traced traced = trace(text, with_special);
    if (std::ranges::equal(traced.ids, ids)) return std::move(traced.spans);
  }
  PENTATRON_THROW(kData, "these {} ids are of another text", ids.size());
}

StagedTokenizer::Traced StagedTokenizer::trace(std::string_view text, bool with_special) const {
  Traced traced;
  const auto add_template = [&](const std::vector<std::int32_t>& ids, std::size_t at) {
    if (!include_template_) return;
    traced.ids.insert(traced.ids.end(), ids.begin(), ids.end());
    traced.spans.insert(traced.spans.end(), ids.size(), {.begin = at, .end = at});
  };
  add_template(stages_.before, 0);
  for_each_part(
      plain_, text, with_special,
      [&](std::int32_t id, std::size_t begin, std::size_t end) {
        traced.ids.push_back(id);
        traced.spans.push_back({.begin = begin, .end = end});
      },
      [&](std::size_t begin, std::size_t end) {
        trace_text(AlignedText(text.substr(begin, end - begin), begin), begin == 0, with_special,
                   traced);
      });
  add_template(stages_.after, text.size());
  return traced;
}

void StagedTokenizer::trace_text(AlignedText text, bool at_start, bool with_special,
                                 Traced& traced) const {
  if (stages_.normalizer != nullptr) stages_.normalizer->apply(text);
  const std::span<const TokenSpan> origins(text.origins());
  for_each_part(
      normalized_, text.text(), with_special,
      [&](std::int32_t id, std::size_t begin, std::size_t end) {
        traced.ids.push_back(id);
        traced.spans.push_back(joined_origin(origins.subspan(begin, end - begin)));
      },
      [&](std::size_t begin, std::size_t end) {
        const auto first = text.origins().begin();
        trace_normalized({.text = text.text().substr(begin, end - begin),
                          .at_start = at_start && begin == 0,
                          .origins = {first + static_cast<std::ptrdiff_t>(begin),
                                      first + static_cast<std::ptrdiff_t>(end)}},
                         traced);
      });
}

void StagedTokenizer::trace_normalized(Word text, Traced& traced) const {
  if (text.text.empty()) return;
  std::vector<Word> words;
  if (stages_.splitter == nullptr) {
    words.push_back(std::move(text));
  } else {
    stages_.splitter->split(std::move(text), words);
  }
  for (const Word& word : words) {
    if (word.text.empty()) continue;
    std::vector<PlacedToken> pieces;
    stages_.model->encode_pieces(word.text, pieces);
    const std::span<const TokenSpan> origins(word.origins);
    for (const auto& [id, begin, end] : pieces) {
      traced.ids.push_back(id);
      traced.spans.push_back(joined_origin(origins.subspan(begin, end - begin)));
    }
  }
}

}  // namespace pentatron::tokenizers
