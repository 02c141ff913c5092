// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

namespace pentatron::tokenizers {

// Bytes of the extended grapheme cluster that begins at `at` (Unicode Standard Annex 29, rules GB3
// to GB13 without GB9c, by ICU's data): what a reader takes for one character. A byte that is not
// part of valid UTF-8 is a cluster of its own. `at` < text.size() is where a cluster begins.
[[nodiscard]] std::size_t grapheme_size(std::string_view text, std::size_t at);

}  // namespace pentatron::tokenizers
