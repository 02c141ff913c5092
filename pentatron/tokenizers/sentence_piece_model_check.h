// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace pentatron::tokenizers {

// Looks through the bytes of a SentencePiece model file for what the library trusts and must not:
// compiled rules of normalisation that lead outside of their bytes. kData ("name: what"); what the
// library refuses by itself passes.
void check_sentence_piece_model(std::string_view bytes, std::string_view name);

}  // namespace pentatron::tokenizers
