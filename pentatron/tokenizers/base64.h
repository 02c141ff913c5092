// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace pentatron::tokenizers {

// The bytes of a base64 text (RFC 4648, padded, no line ends); none for any other text.
[[nodiscard]] std::optional<std::string> base64_decoded(std::string_view text);

}  // namespace pentatron::tokenizers
