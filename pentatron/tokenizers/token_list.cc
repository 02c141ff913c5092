// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/token_list.h"

#include <string>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/base/format.h"
#include "pentatron/tokenizers/bpe_vocabulary.h"

namespace pentatron::tokenizers {

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

}  // namespace pentatron::tokenizers
