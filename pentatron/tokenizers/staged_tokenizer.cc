// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/staged_tokenizer.h"

#include <algorithm>

#include "pentatron/base/error.h"
#include "pentatron/base/sha256.h"
#include "pentatron/tokenizers/bpe_merger.h"
#include "pentatron/tokenizers/byte_bpe.h"

namespace pentatron::tokenizers {
namespace {

std::vector<AddedToken> tokens_to_find(const TokenizerStages& stages, bool normalized) {
  std::vector<AddedToken> tokens;
  for (AddedToken token : stages.added_tokens) {
    if (token.normalized != normalized) continue;
    if (normalized && stages.normalizer != nullptr) {
      token.content = stages.normalizer->apply(token.content);
    }
    tokens.push_back(std::move(token));
  }
  return tokens;
}

std::optional<std::int32_t> known(std::int32_t id) {
  return id < 0 ? std::nullopt : std::optional(id);
}

}  // namespace

StagedTokenizer::StagedTokenizer(TokenizerStages stages, const SpecialTokenIds& special,
                                 TokenizerDescription description, bool include_template)
    : stages_(std::move(stages)),
      special_(special),
      description_(std::move(description)),
      include_template_(include_template),
      plain_(tokens_to_find(stages_, false)),
      normalized_(tokens_to_find(stages_, true)),
      vocab_size_(stages_.model->tokens().size()) {
  if (stages_.splitter != nullptr && stages_.model->byte_bpe() != nullptr) {
    rule_ = stages_.splitter->rule();
  }
  Sha256 hash;
  hash.update(stages_.identity);
  for (const AddedToken& token : stages_.added_tokens) {
    added_.emplace(token.id, token.content);
    if (token.special) special_ids_.insert(token.id);
    vocab_size_ = std::max<std::int64_t>(vocab_size_, token.id + 1);
    hash.update(fmt::format("\n{} {} {}", token.id, token.special, token.content));
  }
  hash.update(fmt::format("\ntemplate {}", include_template));
  identity_hash_ = hash.hex_digest();
}

std::int32_t StagedTokenizer::eod() const {
  PENTATRON_CHECK(special_.eos >= 0, kData,
                  "the tokenizer's files name no end-of-sequence token (eos_token in "
                  "tokenizer_config.json or special_tokens_map.json)");
  return special_.eos;
}

std::optional<std::int32_t> StagedTokenizer::bos() const { return known(special_.bos); }
std::optional<std::int32_t> StagedTokenizer::eos() const { return known(special_.eos); }

template <typename Piece>
void StagedTokenizer::split_at_tokens(const AddedTokenFinder& finder, std::string_view text,
                                      bool with_special, std::vector<std::int32_t>& ids,
                                      Piece&& piece) {
  std::size_t taken = 0;
  for (std::size_t at = 0; at < text.size() || taken < text.size();) {
    const AddedTokenFinder::Found found = finder.find(text, at, taken, with_special);
    if (found.begin > taken) piece(text.substr(taken, found.begin - taken), taken == 0);
    if (found.token == nullptr) break;
    ids.push_back(found.token->id);
    taken = std::max(taken, found.end);
    at = found.next;
  }
}

void StagedTokenizer::do_encode(std::string_view text, std::vector<std::int32_t>& ids,
                                SpecialTokens special) const {
  const bool with_special = special == SpecialTokens::kParse;
  if (include_template_) ids.insert(ids.end(), stages_.before.begin(), stages_.before.end());
  split_at_tokens(plain_, text, with_special, ids, [&](std::string_view piece, bool at_start) {
    encode_text(piece, at_start, with_special, ids);
  });
  if (include_template_) ids.insert(ids.end(), stages_.after.begin(), stages_.after.end());
}

void StagedTokenizer::encode_text(std::string_view text, bool at_start, bool with_special,
                                  std::vector<std::int32_t>& ids) const {
  std::string normalized;
  if (stages_.normalizer != nullptr) {
    normalized = stages_.normalizer->apply(text);
    text = normalized;
  }
  split_at_tokens(normalized_, text, with_special, ids, [&](std::string_view piece, bool first) {
    encode_normalized(piece, at_start && first, ids);
  });
}

void StagedTokenizer::encode_normalized(std::string_view text, bool at_start,
                                        std::vector<std::int32_t>& ids) const {
  if (text.empty()) return;
  if (rule_) {
    BpeWork work;
    return stages_.model->byte_bpe()->encode(*rule_, text, ids, work);
  }
  if (stages_.splitter == nullptr) return stages_.model->encode(text, ids);
  std::vector<Word> words;
  stages_.splitter->split({std::string(text), at_start}, words);
  for (const Word& word : words) {
    if (!word.text.empty()) stages_.model->encode(word.text, ids);
  }
}

bool StagedTokenizer::decodes_apart() const {
  return stages_.decoder == nullptr && !stages_.join_with_space;
}

bool StagedTokenizer::is_open(std::int32_t id) const {
  // A run of bytes becomes text when it has ended; the decoder takes added tokens like the others.
  if (stages_.decoder == nullptr) return false;
  const auto added = added_.find(id);
  if (added != added_.end()) return byte_of_token(added->second).has_value();
  if (id < 0 || id >= stages_.model->tokens().size()) return false;
  return byte_of_token(stages_.model->tokens().token(id)).has_value();
}

std::optional<std::int32_t> StagedTokenizer::token_id(std::string_view token) const {
  for (const auto& [id, content] : added_) {
    if (content == token) return id;
  }
  return known(stages_.model->tokens().find(token));
}

bool StagedTokenizer::is_special(std::int32_t id) const { return special_ids_.contains(id); }

std::string StagedTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (const std::int32_t id : ids) {
    PENTATRON_CHECK(id >= 0 && id < vocab_size_, kData,
                    "token id {} is outside the vocabulary of {} ids", id, vocab_size_);
    const auto added = added_.find(id);
    if (added != added_.end()) {
      tokens.push_back(added->second);
    } else if (id < stages_.model->tokens().size()) {
      tokens.push_back(stages_.model->tokens().token(id));
    }
  }
  if (stages_.decoder != nullptr) stages_.decoder->apply(tokens);
  std::string text;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0 && stages_.decoder == nullptr && stages_.join_with_space) text += ' ';
    text += tokens[i];
  }
  return text;
}

}  // namespace pentatron::tokenizers
