// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/unigram_trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/tokenizers/bpe_vocabulary.h"
#include "pentatron/tokenizers/sentence_piece_library.h"
#include "pentatron/tokenizers/tokenizer.h"

namespace pentatron::tokenizers {
namespace {

struct Context {
  const std::function<bool(std::string_view&)>* next = nullptr;
  std::exception_ptr failure;  // no exception crosses the library
  bool any = false;
  std::string model;
};

bool next_sentence(void* context, const char** text, std::size_t* size) {
  auto& c = *static_cast<Context*>(context);
  try {
    std::string_view sentence;
    if (!(*c.next)(sentence)) return false;
    c.any = true;
    *text = sentence.data();
    *size = sentence.size();
    return true;
  } catch (...) {
    c.failure = std::current_exception();
    return false;
  }
}

void take_model(void* context, const char* model, std::size_t size) {
  static_cast<Context*>(context)->model.assign(model, size);
}

}  // namespace

std::string train_unigram(const std::function<bool(std::string_view& sentence)>& next,
                          const UnigramTrainOptions& options) {
  constexpr std::int64_t kMaxThreads = 128;
  PENTATRON_CHECK(options.vocab_size >= 1 && options.vocab_size <= BpeVocabulary::kMaxTokens,
                  kConfig, "--vocab-size of a unigram vocabulary must be 1 to {}, got {}",
                  BpeVocabulary::kMaxTokens, options.vocab_size);
  PENTATRON_CHECK(options.character_coverage > 0.9 && options.character_coverage <= 1, kConfig,
                  "--character-coverage {}: expected more than 0.9, at most 1",
                  options.character_coverage);
  PENTATRON_CHECK(options.max_sentences == 0 || options.max_sentences > 100, kConfig,
                  "--max-sentences {}: expected more than 100, or 0 for all",
                  options.max_sentences);
  const std::string settings = fmt::format(
      "model_type=unigram\nvocab_size={}\nnum_threads={}\ncharacter_coverage={}\n"
      "byte_fallback={}\npad_id=3\nmax_sentence_length={}\ninput_sentence_size={}\n"
      "shuffle_input_sentence=true\ntrain_extremely_large_corpus=true\n",
      options.vocab_size, std::clamp<std::int64_t>(options.threads, 1, kMaxThreads),
      options.character_coverage, options.byte_fallback, kMaxUnigramSentence,
      options.max_sentences);
  Context context;
  context.next = &next;
  const char* problem =
      sentence_piece_library().train(settings.c_str(), &next_sentence, &take_model, &context);
  if (context.failure) std::rethrow_exception(context.failure);
  PENTATRON_CHECK(context.any, kData, "there is no text to train a tokenizer on");
  PENTATRON_CHECK(problem == nullptr, kData,
                  "no unigram vocabulary of {} tokens can be trained on this text: {}",
                  options.vocab_size, replace_invalid_utf8(problem));
  return std::move(context.model);
}

}  // namespace pentatron::tokenizers
