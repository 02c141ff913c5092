// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

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

}  // namespace pentatron::tokenizers
