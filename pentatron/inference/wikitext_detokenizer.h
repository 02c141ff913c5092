// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace pentatron::inference {

// Undoes WikiText's tokenisation (spaces around punctuation and inside brackets, "@-@" inside
// words, headings as "= =") by the replacements of Megatron's evaluation, in its order and with its
// peculiarities, so that perplexities compare. UTF-8 in and out; linear.
[[nodiscard]] std::string detokenize_wikitext(std::string_view text);

}  // namespace pentatron::inference
