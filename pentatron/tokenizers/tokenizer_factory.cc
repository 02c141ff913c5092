// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tokenizers/tokenizer_factory.h"

#include <algorithm>
#include <array>

#include "pentatron/base/error.h"
#include "pentatron/tokenizers/bpe_tokenizer.h"
#include "pentatron/tokenizers/null_tokenizer.h"

namespace pentatron::tokenizers {
namespace {

constexpr std::string_view kGpt2 = "GPT2BPETokenizer";
constexpr std::string_view kNull = "NullTokenizer";
constexpr std::array<std::string_view, 10> kPlanned = {"BertWordPieceLowerCase",
                                                       "BertWordPieceCase",
                                                       "SentencePieceTokenizer",
                                                       "GPTSentencePieceTokenizer",
                                                       "HuggingFaceTokenizer",
                                                       "Llama2Tokenizer",
                                                       "TikTokenizer",
                                                       "MultimodalTokenizer",
                                                       "NullMultimodalTokenizer",
                                                       "SFTTokenizer"};

std::unique_ptr<Tokenizer> make_gpt2(const TokenizerOptions& options) {
  PENTATRON_CHECK(!options.vocab_file.empty() && !options.merge_file.empty(), kConfig,
                  "--tokenizer-type {} needs --vocab-file and --merge-file, got '{}' and '{}'",
                  kGpt2, options.vocab_file, options.merge_file);
  auto tokenizer = std::make_unique<BpeTokenizer>(options.vocab_file, options.merge_file);
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

}  // namespace

std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerOptions& options) {
  if (options.tokenizer_type == kGpt2) return make_gpt2(options);
  if (options.tokenizer_type == kNull) return make_null(options);
  PENTATRON_CHECK(
      std::find(kPlanned.begin(), kPlanned.end(), options.tokenizer_type) == kPlanned.end(),
      kUnsupported, "--tokenizer-type {} is not built yet; {} and {} work", options.tokenizer_type,
      kGpt2, kNull);
  PENTATRON_THROW(kConfig, "--tokenizer-type must be {} or {}, got '{}'", kGpt2, kNull,
                  options.tokenizer_type);
}

}  // namespace pentatron::tokenizers
