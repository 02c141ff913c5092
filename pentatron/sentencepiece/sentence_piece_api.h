// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

// The functions of libpentatron_sentencepiece.so, looked up by name. No exception crosses them:
// what returns a text returns nullptr when all is well, else a message that stays valid until the
// calling thread's next call.
extern "C" {

struct pentatron_sentence_piece;  // a model

// From the bytes of a model file. `*model` is freed by pentatron_sentence_piece_close.
const char* pentatron_sentence_piece_open(const char* bytes, std::size_t size,
                                          pentatron_sentence_piece** model);
void pentatron_sentence_piece_close(pentatron_sentence_piece* model);

// Calls take(context, ids, count) once.
const char* pentatron_sentence_piece_encode(const pentatron_sentence_piece* model, const char* text,
                                            std::size_t size,
                                            void (*take)(void*, const int*, std::size_t),
                                            void* context);
// Calls take(context, id, begin, end) for each piece in order: the bytes of the text it stands for.
const char* pentatron_sentence_piece_spans(const pentatron_sentence_piece* model, const char* text,
                                           std::size_t size,
                                           void (*take)(void*, int, std::size_t, std::size_t),
                                           void* context);
// Ids must lie inside the vocabulary. Calls take(context, text, size) once.
const char* pentatron_sentence_piece_decode(const pentatron_sentence_piece* model, const int* ids,
                                            std::size_t count,
                                            void (*take)(void*, const char*, std::size_t),
                                            void* context);

// The id of a piece, -1 where there is none.
int pentatron_sentence_piece_find(const pentatron_sentence_piece* model, const char* piece,
                                  std::size_t size);
// 0: text, 1: control, unknown or unused, 2: a byte. The id must lie inside the vocabulary.
int pentatron_sentence_piece_kind(const pentatron_sentence_piece* model, int id);

// Trains a model. `settings` are lines NAME=VALUE, the options of spm_train less its input and
// output. next(context,
// text, size) gives one sentence a call, valid until the next call, and false at the end. Calls
// take(context, model, size) once.
const char* pentatron_sentence_piece_train(const char* settings,
                                           bool (*next)(void*, const char**, std::size_t*),
                                           void (*take)(void*, const char*, std::size_t),
                                           void* context);

// -1 where the model has no such piece.
struct PentatronSentencePieceInfo {
  std::int32_t size;
  std::int32_t bos;
  std::int32_t eos;
  std::int32_t pad;
  std::int32_t unknown;
};
PentatronSentencePieceInfo pentatron_sentence_piece_describe(const pentatron_sentence_piece* model);

}  // extern "C"
