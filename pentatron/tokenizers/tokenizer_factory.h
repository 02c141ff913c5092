// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pentatron/tokenizers/tokenizer.h"

namespace pentatron::tokenizers {

// What decides a tokenizer; names are those of the options.
struct TokenizerOptions {
  std::string tokenizer_type;
  std::string vocab_file;
  std::string merge_file;
  std::string tokenizer_model;  // file or folder
  std::vector<std::string> tokenizer_special_tokens;
  std::string tiktoken_pattern;  // v1, v2; empty: v2
  std::int64_t tiktoken_num_special_tokens = 1000;
  bool hf_include_special_tokens = true;
  std::string metadata;       // file of tokenizer_metadata.h; empty: none
  std::string chat_template;  // file or text of a chat template; empty: the tokenizer's own
  bool sentencepiece_legacy = false;
  bool sentencepiece_ignore_extra_whitespaces = true;
  std::int64_t vocab_size = 0;              // 0: the tokenizer's own
  std::int64_t null_tokenizer_eod_id = -1;  // -1: vocab_size - 1
  std::int64_t null_tokenizer_pad_id = -1;  // -1: none
};

// The chat template that the options give, by --chat-template or the metadata; none: the
// tokenizer's own counts. kConfig where both give one, else the errors of tokenizer_metadata.h.
[[nodiscard]] std::optional<std::string> given_chat_template(const TokenizerOptions& options);

// Builds the tokenizer of tokenizer_type: GPT2BPETokenizer, HuggingFaceTokenizer, TikTokenizer,
// SentencePieceTokenizer, GPTSentencePieceTokenizer, Llama2Tokenizer, BertWordPieceLowerCase,
// BertWordPieceCase, NullTokenizer, and SFTTokenizer, a HuggingFaceTokenizer for conversations
// (datasets/sft_format.h). Throws kConfig for an unknown type, a missing file option or a
// vocab_size that the files do not have, kUnsupported for Megatron's other types, kIo and kData for
// the files.
[[nodiscard]] std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerOptions& options);

// The options in a config::DataConfig. This module does not see config, so the fields are taken by
// name.
template <typename DataConfig>
requires requires(const DataConfig& data) {
  { data.tokenizer_type } -> std::convertible_to<std::string>;
  { data.merge_file } -> std::convertible_to<std::string>;
  data.tokenizer_model;
}
[[nodiscard]] TokenizerOptions tokenizer_options(const DataConfig& data, std::int64_t vocab_size) {
  // What a chat template writes, it writes whole.
  const bool chat = data.tokenizer_type == "SFTTokenizer";
  return {.tokenizer_type = data.tokenizer_type,
          .vocab_file = data.vocab_file,
          .merge_file = data.merge_file,
          .tokenizer_model = data.tokenizer_model,
          .tokenizer_special_tokens = data.tokenizer_special_tokens,
          .tiktoken_pattern = data.tiktoken_pattern,
          .tiktoken_num_special_tokens = data.tiktoken_num_special_tokens,
          .hf_include_special_tokens = !chat && !data.tokenizer_hf_no_include_special_tokens,
          .metadata = data.tokenizer_metadata,
          .chat_template = data.chat_template,
          .sentencepiece_legacy = data.tokenizer_sentencepiece_legacy,
          .sentencepiece_ignore_extra_whitespaces =
              data.tokenizer_sentencepiece_ignore_extra_whitespaces,
          .vocab_size = vocab_size,
          .null_tokenizer_eod_id = data.null_tokenizer_eod_id,
          .null_tokenizer_pad_id = data.null_tokenizer_pad_id};
}

// The tokenizer of these options.
template <typename DataConfig>
[[nodiscard]] std::unique_ptr<Tokenizer> make_tokenizer(const DataConfig& data,
                                                        std::int64_t vocab_size) {
  return make_tokenizer(tokenizer_options(data, vocab_size));
}

}  // namespace pentatron::tokenizers
