// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pentatron::tokenizers {

// The "decoder" of a tokenizer.json: tokens to text, changed list by list.
class TokenDecoder {
 public:
  virtual ~TokenDecoder() = default;
  virtual void apply(std::vector<std::string>& tokens) const = 0;
};
using TokenDecoderPtr = std::unique_ptr<TokenDecoder>;

// The byte that a token of byte fallback ("<0x0A>") stands for.
[[nodiscard]] std::optional<char> byte_of_token(std::string_view token);

// null and byte-level decoders give nullptr: the tokens' bytes are joined as they are. What is not
// supported throws kUnsupported naming it, what is malformed kData.
[[nodiscard]] TokenDecoderPtr make_token_decoder(const nlohmann::json& json, std::string_view name);

}  // namespace pentatron::tokenizers
