// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/tokenizer_factory.h"

#include <algorithm>
#include <array>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/base/format.h"
#include "pentatron/base/log.h"
#include "pentatron/tokenizers/bert_tokenizer.h"
#include "pentatron/tokenizers/bpe_tokenizer.h"
#include "pentatron/tokenizers/byte_alphabet.h"
#include "pentatron/tokenizers/chat_template.h"
#include "pentatron/tokenizers/hugging_face_tokenizer.h"
#include "pentatron/tokenizers/null_tokenizer.h"
#include "pentatron/tokenizers/sentence_piece_tokenizer.h"
#include "pentatron/tokenizers/tiktoken_tokenizer.h"
#include "pentatron/tokenizers/tokenizer_metadata.h"

namespace pentatron::tokenizers {
namespace {

constexpr std::string_view kGpt2 = "GPT2BPETokenizer";
constexpr std::string_view kNull = "NullTokenizer";
constexpr std::string_view kBertLowerCase = "BertWordPieceLowerCase";
constexpr std::array<std::string_view, 2> kPlanned = {"MultimodalTokenizer",
                                                      "NullMultimodalTokenizer"};

// A merges.txt that was cut gives another tokenizer without any other sign.
void check_merges(const BpeVocabulary& vocabulary, const TokenizerOptions& options) {
  std::size_t count = 0;
  std::string first;
  for (const std::int32_t id : vocabulary.unmade_tokens()) {
    // Special tokens, added at the end of a vocabulary, are no merge's product.
    const std::string& token = vocabulary.token(id);
    const bool special = (token.starts_with('<') && token.ends_with('>')) ||
                         (token.starts_with('[') && token.ends_with(']'));
    if (!special && count++ == 0) first = quoted_for_message(bytes_to_visible(token));
  }
  if (count == 0) return;
  PENTATRON_CHECK(vocabulary.num_merges() > 0, kData,
                  "--merge-file {} holds no merge, but --vocab-file {} has {} tokens that need one "
                  "(the first: {}): name the merges.txt of this vocabulary",
                  options.merge_file, options.vocab_file, count, first);
  log::warn(
      "{} tokens of --vocab-file {} cannot be made with the {} merges of --merge-file {} (the "
      "first: {}): is it cut?",
      count, options.vocab_file, vocabulary.num_merges(), options.merge_file, first);
}

std::unique_ptr<Tokenizer> make_gpt2(const TokenizerOptions& options) {
  PENTATRON_CHECK(!options.vocab_file.empty() && !options.merge_file.empty(), kConfig,
                  "--tokenizer-type {} needs --vocab-file and --merge-file, got '{}' and '{}'",
                  kGpt2, options.vocab_file, options.merge_file);
  auto tokenizer = std::make_unique<BpeTokenizer>(options.vocab_file, options.merge_file);
  check_merges(tokenizer->vocabulary(), options);
  PENTATRON_CHECK(options.vocab_size <= 0 || options.vocab_size == tokenizer->vocab_size(), kConfig,
                  "--vocab-size {} does not match the {} tokens of --vocab-file {}: leave out "
                  "--vocab-size, or name the vocabulary that was meant",
                  options.vocab_size, tokenizer->vocab_size(), options.vocab_file);
  return tokenizer;
}

std::unique_ptr<Tokenizer> make_null(const TokenizerOptions& options) {
  PENTATRON_CHECK(options.vocab_size > 0, kConfig, "--tokenizer-type {} needs --vocab-size", kNull);
  // Only values that differ from the defaults count as given: the description then equals that of
  // a tokenizer made without them.
  std::optional<std::int64_t> eod;
  std::optional<std::int64_t> pad;
  const std::int64_t wanted_eod = options.null_tokenizer_eod_id;
  if (wanted_eod != -1 && wanted_eod != options.vocab_size - 1) eod = wanted_eod;
  if (options.null_tokenizer_pad_id != -1) pad = options.null_tokenizer_pad_id;
  return std::make_unique<NullTokenizer>(options.vocab_size, eod, pad);
}

const std::string& model_file(const TokenizerOptions& options) {
  PENTATRON_CHECK(!options.tokenizer_model.empty(), kConfig,
                  "--tokenizer-type {} needs --tokenizer-model", options.tokenizer_type);
  return options.tokenizer_model;
}

std::unique_ptr<Tokenizer> make_hugging_face(const TokenizerOptions& options) {
  return load_hugging_face_tokenizer(model_file(options),
                                     {.include_special_tokens = options.hf_include_special_tokens,
                                      .special_tokens = options.tokenizer_special_tokens,
                                      .chat_template = options.chat_template});
}

std::unique_ptr<Tokenizer> make_tiktoken(const TokenizerOptions& options) {
  TiktokenOptions tiktoken{.num_special_tokens = options.tiktoken_num_special_tokens,
                           .special_tokens = options.tokenizer_special_tokens,
                           .chat_template = options.chat_template};
  PENTATRON_CHECK(options.tiktoken_pattern.empty() || options.tiktoken_pattern == "v1" ||
                      options.tiktoken_pattern == "v2",
                  kConfig, "--tiktoken-pattern must be v1 or v2, got '{}'",
                  options.tiktoken_pattern);
  if (options.tiktoken_pattern == "v1") tiktoken.pattern = TiktokenPattern::kV1;
  if (options.vocab_size > 0) tiktoken.vocab_size = options.vocab_size;
  return load_tiktoken_tokenizer(model_file(options), tiktoken);
}

std::unique_ptr<Tokenizer> make_sentence_piece(const TokenizerOptions& options) {
  PENTATRON_CHECK(
      options.tokenizer_special_tokens.empty() || options.sentencepiece_legacy, kConfig,
      "--tokenizer-special-tokens are part of a SentencePiece model: give them when it is trained, "
      "or add --tokenizer-sentencepiece-legacy");
  auto tokenizer = std::make_unique<SentencePieceTokenizer>(
      model_file(options), SentencePieceOptions{.legacy = options.sentencepiece_legacy,
                                                .ignore_extra_whitespaces =
                                                    options.sentencepiece_ignore_extra_whitespaces,
                                                .special_tokens = options.tokenizer_special_tokens,
                                                .chat_template = options.chat_template});
  if (!options.sentencepiece_ignore_extra_whitespaces && !tokenizer->drops_extra_spaces()) {
    log::warn(
        "--no-tokenizer-sentencepiece-ignore-extra-whitespaces changes nothing: the model {} keeps "
        "spaces as they are",
        options.tokenizer_model);
  }
  return tokenizer;
}

std::unique_ptr<Tokenizer> make_bert(const TokenizerOptions& options) {
  PENTATRON_CHECK(!options.vocab_file.empty(), kConfig, "--tokenizer-type {} needs --vocab-file",
                  options.tokenizer_type);
  return load_bert_tokenizer(options.vocab_file, options.tokenizer_type == kBertLowerCase);
}

using Maker = std::unique_ptr<Tokenizer> (*)(const TokenizerOptions&);
constexpr std::array<std::pair<std::string_view, Maker>, 10> kMakers = {
    {{kGpt2, make_gpt2},
     {"HuggingFaceTokenizer", make_hugging_face},
     {"SFTTokenizer", make_hugging_face},
     {"TikTokenizer", make_tiktoken},
     {"SentencePieceTokenizer", make_sentence_piece},
     {"GPTSentencePieceTokenizer", make_sentence_piece},
     {"Llama2Tokenizer", make_sentence_piece},
     {kBertLowerCase, make_bert},
     {"BertWordPieceCase", make_bert},
     {kNull, make_null}}};

}  // namespace

std::optional<std::string> given_chat_template(const TokenizerOptions& options) {
  std::optional<std::string> found;
  if (!options.metadata.empty()) {
    found = read_tokenizer_metadata(options.metadata, options.tokenizer_type).chat_template;
  }
  PENTATRON_CHECK(!found || options.chat_template.empty(), kConfig,
                  "--chat-template and --tokenizer-metadata {} both give a chat template: drop one",
                  options.metadata);
  if (!options.chat_template.empty()) found = chat_template_text(options.chat_template);
  // A template that is none is told now, not when it is first used.
  if (found) static_cast<void>(ChatTemplate(*found, "--chat-template"));
  return found;
}

std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerOptions& options) {
  std::string known;
  for (const auto& [type, make] : kMakers) {
    if (options.tokenizer_type == type) {
      static_cast<void>(given_chat_template(options));
      return make(options);
    }
    known += (known.empty() ? "" : ", ") + std::string(type);
  }
  PENTATRON_CHECK(
      std::find(kPlanned.begin(), kPlanned.end(), options.tokenizer_type) == kPlanned.end(),
      kUnsupported, "--tokenizer-type {} is not built yet; these work: {}", options.tokenizer_type,
      known);
  PENTATRON_THROW(kConfig, "--tokenizer-type must be one of {}, got '{}'", known,
                  options.tokenizer_type);
}

}  // namespace pentatron::tokenizers
