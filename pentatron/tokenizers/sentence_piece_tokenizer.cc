// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/sentence_piece_tokenizer.h"

#include <dlfcn.h>

#include <algorithm>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/base/sha256.h"
#include "pentatron/sentencepiece/sentence_piece_api.h"
#include "pentatron/tokenizers/bpe_vocabulary.h"

namespace pentatron::tokenizers {
namespace {

// The library's functions; it stays open until the process ends.
struct Library {
  decltype(&pentatron_sentence_piece_open) open = nullptr;
  decltype(&pentatron_sentence_piece_close) close = nullptr;
  decltype(&pentatron_sentence_piece_encode) encode = nullptr;
  decltype(&pentatron_sentence_piece_spans) spans = nullptr;
  decltype(&pentatron_sentence_piece_decode) decode = nullptr;
  decltype(&pentatron_sentence_piece_find) find = nullptr;
  decltype(&pentatron_sentence_piece_kind) kind = nullptr;
  decltype(&pentatron_sentence_piece_describe) describe = nullptr;
};

std::filesystem::path own_folder() {
  Dl_info info{};
  const bool found = ::dladdr(reinterpret_cast<const void*>(&own_folder), &info) != 0;
  return found ? std::filesystem::path(info.dli_fname).parent_path() : std::filesystem::path();
}

Library open_library() {
#if defined(__SANITIZE_ADDRESS__)
  PENTATRON_THROW(kUnsupported, "a build with sanitisers has no SentencePiece tokenizer");
#else
  const std::filesystem::path path = own_folder() / "libpentatron_sentencepiece.so";
  // Its own symbols first: the sentencepiece library holds another protobuf than ours.
  void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  PENTATRON_CHECK(handle != nullptr, kUnsupported,
                  "SentencePiece models need {}, which cannot be opened: {}", path.string(),
                  ::dlerror());
  const auto find = [&](const char* name, auto& function) {
    function =
        reinterpret_cast<std::remove_reference_t<decltype(function)> >(::dlsym(handle, name));
    PENTATRON_CHECK(function != nullptr, kInternal, "{} has no {}", path.string(), name);
  };
  Library library;
  find("pentatron_sentence_piece_open", library.open);
  find("pentatron_sentence_piece_close", library.close);
  find("pentatron_sentence_piece_encode", library.encode);
  find("pentatron_sentence_piece_spans", library.spans);
  find("pentatron_sentence_piece_decode", library.decode);
  find("pentatron_sentence_piece_find", library.find);
  find("pentatron_sentence_piece_kind", library.kind);
  find("pentatron_sentence_piece_describe", library.describe);
  return library;
#endif
}

const Library& library() {
  static const Library opened = open_library();
  return opened;
}

std::optional<std::int32_t> known(std::int32_t id) {
  return id < 0 ? std::nullopt : std::optional(id);
}

}  // namespace

struct SentencePieceTokenizer::Model {
  pentatron_sentence_piece* handle = nullptr;
  pentatron_sentence_piece_info info{};
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
