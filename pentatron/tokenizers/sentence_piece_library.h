// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/sentencepiece/sentence_piece_api.h"

namespace pentatron::tokenizers {

// The functions of libpentatron_sentencepiece.so.
struct SentencePieceLibrary {
  decltype(&pentatron_sentence_piece_open) open = nullptr;
  decltype(&pentatron_sentence_piece_close) close = nullptr;
  decltype(&pentatron_sentence_piece_encode) encode = nullptr;
  decltype(&pentatron_sentence_piece_spans) spans = nullptr;
  decltype(&pentatron_sentence_piece_decode) decode = nullptr;
  decltype(&pentatron_sentence_piece_find) find = nullptr;
  decltype(&pentatron_sentence_piece_kind) kind = nullptr;
  decltype(&pentatron_sentence_piece_describe) describe = nullptr;
  decltype(&pentatron_sentence_piece_train) train = nullptr;
};

// Opened at the first call; it stays open until the process ends. kUnsupported where it is missing.
[[nodiscard]] const SentencePieceLibrary& sentence_piece_library();

}  // namespace pentatron::tokenizers
