// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

namespace pentatron::tokenizers {

// Looks through the bytes of a SentencePiece model file for what the library trusts and must not:
// compiled rules of normalisation that lead outside of their bytes. kData ("name: what"); what the
// library refuses by itself passes.
void check_sentence_piece_model(std::string_view bytes, std::string_view name);

// Bytes of the longest piece, or of the longest text that a rule of normalisation may replace
// (Charsmap::kMaxKeyBytes): nothing looks further in a text. `bytes` have passed the check.
[[nodiscard]] std::size_t reach_of_sentence_piece_model(std::string_view bytes);

}  // namespace pentatron::tokenizers
