// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/sentence_piece_tokenizer.h"

#include <algorithm>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/base/sha256.h"
#include "pentatron/sentencepiece/sentence_piece_api.h"
#include "pentatron/tokenizers/bpe_vocabulary.h"
#include "pentatron/tokenizers/sentence_piece_library.h"
#include "pentatron/tokenizers/sentence_piece_model_check.h"

namespace pentatron::tokenizers {
namespace {

const SentencePieceLibrary& library() { return sentence_piece_library(); }

std::optional<std::int32_t> known(std::int32_t id) {
  return id < 0 ? std::nullopt : std::optional(id);
}

}  // namespace

struct SentencePieceTokenizer::Model {
  pentatron_sentence_piece* handle = nullptr;
  PentatronSentencePieceInfo info{};
  Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;
  ~Model() {
    if (handle != nullptr) library().close(handle);
  }
};

SentencePieceTokenizer::SentencePieceTokenizer(const std::filesystem::path& model_file)
    : model_(std::make_unique<Model>()), model_file_(model_file.string()) {
  const std::string content = read_text_file(model_file, BpeVocabulary::kMaxFileBytes);
  check_sentence_piece_model(content, model_file_);
  const char* problem = library().open(content.data(), content.size(), &model_->handle);
  PENTATRON_CHECK(problem == nullptr, kData, "{}: not a SentencePiece model: {}", model_file_,
                  replace_invalid_utf8(problem));
  model_->info = library().describe(model_->handle);
  Sha256 hash;
  hash.update("sentencepiece\n");
  hash.update(content);
  identity_hash_ = hash.hex_digest();
}

SentencePieceTokenizer::~SentencePieceTokenizer() = default;

void SentencePieceTokenizer::do_encode(std::string_view text, std::vector<std::int32_t>& ids,
                                       SpecialTokens /*special*/) const {
  const auto take = [](void* context, const int* pieces, std::size_t count) {
    auto& list = *static_cast<std::vector<std::int32_t>*>(context);
    list.insert(list.end(), pieces, pieces + count);
  };
  const char* problem = library().encode(model_->handle, text.data(), text.size(), take, &ids);
  PENTATRON_CHECK(problem == nullptr, kData, "{}: a text of {} bytes cannot be encoded: {}",
                  model_file_, text.size(), replace_invalid_utf8(problem));
}

std::string SentencePieceTokenizer::decode(std::span<const std::int32_t> ids) const {
  for (const std::int32_t id : ids) {
    PENTATRON_CHECK(id >= 0 && id < vocab_size(), kData,
                    "token id {} is outside the vocabulary of {} ids", id, vocab_size());
  }
  std::string result;
  const auto take = [](void* context, const char* text, std::size_t size) {
    static_cast<std::string*>(context)->assign(text, size);
  };
  const char* problem = library().decode(model_->handle, ids.data(), ids.size(), take, &result);
  PENTATRON_CHECK(problem == nullptr, kData, "{}: {} ids cannot be decoded: {}", model_file_,
                  ids.size(), replace_invalid_utf8(problem));
  return result;
}

std::vector<TokenSpan> SentencePieceTokenizer::spans(std::string_view text,
                                                     std::span<const std::int32_t> ids) const {
  struct Found {
    std::vector<std::int32_t> ids;
    std::vector<TokenSpan> spans;
  } found;
  const auto take = [](void* context, int id, std::size_t begin, std::size_t end) {
    auto& list = *static_cast<Found*>(context);
    list.ids.push_back(id);
    list.spans.push_back({.begin = begin, .end = end});
  };
  const char* problem = library().spans(model_->handle, text.data(), text.size(), take, &found);
  PENTATRON_CHECK(problem == nullptr, kData, "{}: a text of {} bytes cannot be encoded: {}",
                  model_file_, text.size(), replace_invalid_utf8(problem));
  PENTATRON_CHECK(std::ranges::equal(found.ids, ids), kData, "{}: these {} ids are of another text",
                  model_file_, ids.size());
  return found.spans;
}

bool SentencePieceTokenizer::is_open(std::int32_t id) const {
  return id >= 0 && id < vocab_size() && library().kind(model_->handle, id) == 2;
}

bool SentencePieceTokenizer::is_special(std::int32_t id) const {
  return id >= 0 && id < vocab_size() && library().kind(model_->handle, id) == 1;
}

std::optional<std::int32_t> SentencePieceTokenizer::token_id(std::string_view token) const {
  return known(library().find(model_->handle, token.data(), token.size()));
}

std::int64_t SentencePieceTokenizer::vocab_size() const { return model_->info.size; }

std::int32_t SentencePieceTokenizer::eod() const {
  PENTATRON_CHECK(model_->info.eos >= 0, kData, "{}: the model has no end-of-sentence piece",
                  model_file_);
  return model_->info.eos;
}

std::int32_t SentencePieceTokenizer::pad() const { return model_->info.pad; }
std::optional<std::int32_t> SentencePieceTokenizer::bos() const { return known(model_->info.bos); }
std::optional<std::int32_t> SentencePieceTokenizer::eos() const { return known(model_->info.eos); }

TokenizerDescription SentencePieceTokenizer::description() const {
  return {.class_name = std::string(kMegatronTextClass),
          .tokenizer_path = model_file_,
          .arguments = {{"chat_template", "None"},
                        {"ignore_extra_whitespaces", "False"},
                        {"legacy", "False"},
                        {"special_tokens", "None"}}};
}

}  // namespace pentatron::tokenizers
