// SPDX-License-Identifier: Apache-2.0
#include "pentatron/sentencepiece/sentence_piece_api.h"

#include <sentencepiece_processor.h>

#include <exception>
#include <memory>
#include <string>
#include <vector>

struct pentatron_sentence_piece {
  sentencepiece::SentencePieceProcessor processor;
};

namespace {

thread_local std::string message;

// Runs `call`, which returns a status of the library.
template <typename Call>
const char* message_of(Call&& call) {
  try {
    const sentencepiece::util::Status status = call();
    if (status.ok()) return nullptr;
    message = status.ToString();
  } catch (const std::exception& error) {
    message = error.what();
  }
  return message.c_str();
}

}  // namespace

const char* pentatron_sentence_piece_open(const char* bytes, std::size_t size,
                                          pentatron_sentence_piece** model) {
  return message_of([&] {
    auto opened = std::make_unique<pentatron_sentence_piece>();
    const auto status = opened->processor.LoadFromSerializedProto({bytes, size});
    if (status.ok()) *model = opened.release();
    return status;
  });
}

void pentatron_sentence_piece_close(pentatron_sentence_piece* model) { delete model; }

const char* pentatron_sentence_piece_encode(const pentatron_sentence_piece* model, const char* text,
                                            std::size_t size,
                                            void (*take)(void*, const int*, std::size_t),
                                            void* context) {
  return message_of([&] {
    std::vector<int> ids;
    const auto status = model->processor.Encode({text, size}, &ids);
    if (status.ok()) take(context, ids.data(), ids.size());
    return status;
  });
}

const char* pentatron_sentence_piece_spans(const pentatron_sentence_piece* model, const char* text,
                                           std::size_t size,
                                           void (*take)(void*, int, std::size_t, std::size_t),
                                           void* context) {
  return message_of([&] {
    const auto encoded = model->processor.EncodeAsImmutableProto({text, size});
    for (const auto& piece : encoded.pieces()) {
      take(context, static_cast<int>(piece.id()), piece.begin(), piece.end());
    }
    return sentencepiece::util::Status();
  });
}

const char* pentatron_sentence_piece_decode(const pentatron_sentence_piece* model, const int* ids,
                                            std::size_t count,
                                            void (*take)(void*, const char*, std::size_t),
                                            void* context) {
  return message_of([&] {
    std::string text;
    const auto status = model->processor.Decode(std::vector<int>(ids, ids + count), &text);
    if (status.ok()) take(context, text.data(), text.size());
    return status;
  });
}

int pentatron_sentence_piece_find(const pentatron_sentence_piece* model, const char* piece,
                                  std::size_t size) {
  // Another piece's id, the unknown one's, stands for none.
  const int id = model->processor.PieceToId({piece, size});
  return model->processor.IdToPiece(id) == std::string(piece, size) ? id : -1;
}

int pentatron_sentence_piece_kind(const pentatron_sentence_piece* model, int id) {
  const auto& processor = model->processor;
  if (processor.IsByte(id)) return 2;
  return processor.IsControl(id) || processor.IsUnknown(id) || processor.IsUnused(id) ? 1 : 0;
}

pentatron_sentence_piece_info pentatron_sentence_piece_describe(
    const pentatron_sentence_piece* model) {
  const auto& processor = model->processor;
  return {processor.GetPieceSize(), processor.bos_id(), processor.eos_id(), processor.pad_id()};
}
