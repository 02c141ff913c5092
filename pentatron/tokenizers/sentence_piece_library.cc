// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/sentence_piece_library.h"

#include <dlfcn.h>

#include <filesystem>
#include <type_traits>

#include "pentatron/base/error.h"

namespace pentatron::tokenizers {
namespace {

std::filesystem::path own_folder() {
  Dl_info info{};
  const bool found = ::dladdr(reinterpret_cast<const void*>(&own_folder), &info) != 0;
  return found ? std::filesystem::path(info.dli_fname).parent_path() : std::filesystem::path();
}

SentencePieceLibrary open_library() {
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
  SentencePieceLibrary library;
  find("pentatron_sentence_piece_open", library.open);
  find("pentatron_sentence_piece_close", library.close);
  find("pentatron_sentence_piece_encode", library.encode);
  find("pentatron_sentence_piece_spans", library.spans);
  find("pentatron_sentence_piece_decode", library.decode);
  find("pentatron_sentence_piece_find", library.find);
  find("pentatron_sentence_piece_kind", library.kind);
  find("pentatron_sentence_piece_describe", library.describe);
  find("pentatron_sentence_piece_train", library.train);
  return library;
#endif
}

}  // namespace

const SentencePieceLibrary& sentence_piece_library() {
  static const SentencePieceLibrary kOpened = open_library();
  return kOpened;
}

}  // namespace pentatron::tokenizers
