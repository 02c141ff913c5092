// SPDX-License-Identifier: Apache-2.0
#include "pentatron/sentencepiece/sentence_piece_api.h"

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
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

// Of lines NAME=VALUE. The library's lines about its progress are turned off: they would go to a
// std::cerr that is not the program's, because this library is bound to its own symbols first.
std::unordered_map<std::string, std::string> arguments_of(std::string_view settings) {
  std::unordered_map<std::string, std::string> arguments = {{"minloglevel", "3"}};
  while (!settings.empty()) {
    const std::string_view line = settings.substr(0, settings.find('\n'));
    settings.remove_prefix(std::min(settings.size(), line.size() + 1));
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos) continue;
    arguments.emplace(line.substr(0, equals), line.substr(equals + 1));
  }
  return arguments;
}

class Sentences final : public sentencepiece::SentenceIterator {
 public:
  Sentences(bool (*next)(void*, const char**, std::size_t*), void* context)
      : next_(next), context_(context) {
    Sentences::Next();
  }
  bool done() const override { return done_; }
  void Next() override {
    const char* text = nullptr;
    std::size_t size = 0;
    done_ = !next_(context_, &text, &size);
    if (!done_) value_.assign(text, size);
  }
  const std::string& value() const override { return value_; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  bool (*next_)(void*, const char**, std::size_t*);
  void* context_;
  std::string value_;
  bool done_ = false;
};

}  // namespace

const char* pentatron_sentence_piece_train(const char* settings,
                                           bool (*next)(void*, const char**, std::size_t*),
                                           void (*take)(void*, const char*, std::size_t),
                                           void* context) {
  return message_of([&] {
    // Samples of the sentences are the same in each run.
    sentencepiece::SetRandomGeneratorSeed(0);
    Sentences sentences(next, context);
    std::string model;
    const auto status =
        sentencepiece::SentencePieceTrainer::Train(arguments_of(settings), &sentences, &model);
    if (status.ok()) take(context, model.data(), model.size());
    return status;
  });
}

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

PentatronSentencePieceInfo pentatron_sentence_piece_describe(
    const pentatron_sentence_piece* model) {
  const auto& processor = model->processor;
  return {processor.GetPieceSize(), processor.bos_id(), processor.eos_id(), processor.pad_id(),
          processor.unk_id()};
}
