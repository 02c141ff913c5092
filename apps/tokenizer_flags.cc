// SPDX-License-Identifier: Apache-2.0
#include "apps/tokenizer_flags.h"

#include "pentatron/base/error.h"
#include "pentatron/tokenizers/tokenizer_factory.h"

namespace pentatron::apps {

std::vector<Flags::Spec> tokenizer_flags(bool required) {
  return {{"--tokenizer-type", "TYPE",
           "GPT2BPETokenizer, HuggingFaceTokenizer, TikTokenizer, SentencePieceTokenizer, "
           "GPTSentencePieceTokenizer, Llama2Tokenizer, BertWordPieceLowerCase, BertWordPieceCase, "
           "SFTTokenizer or NullTokenizer",
           "", required},
          {"--tokenizer-model", "PATH",
           "folder or file of HuggingFaceTokenizer (tokenizer.json), TikTokenizer or SentencePiece",
           ""},
          {"--tokenizer-special-tokens", "TOKEN ...", "special tokens to add", "", false, true},
          {"--tiktoken-pattern", "v1|v2", "how TikTokenizer cuts text into words", ""},
          {"--tiktoken-num-special-tokens", "N", "ids that TikTokenizer keeps", "1000"},
          {"--tokenizer-hf-no-include-special-tokens", "",
           "leave out the tokens that a tokenizer.json puts around each text"},
          {"--tokenizer-metadata", "FILE", "tokenizer_metadata.json of the tokenizer", ""},
          {"--tokenizer-sentencepiece-legacy", "",
           "SentencePiece: special tokens are added to the model's and found in texts"},
          {"--no-tokenizer-sentencepiece-ignore-extra-whitespaces", "",
           "SentencePiece: encode the spaces that the model would drop"},
          {"--vocab-file", "FILE", "vocab.json", ""},
          {"--merge-file", "FILE", "merges.txt", ""},
          {"--vocab-size", "N", "vocabulary of the NullTokenizer", "0"},
          {"--null-tokenizer-eod-id", "N", "end-of-document token of NullTokenizer",
           "the one after --vocab-size"},
          {"--null-tokenizer-pad-id", "N", "padding of NullTokenizer; no effect on texts", "-1"},
          {"--chat-template", "FILE", "no effect on texts: of training with --sft"},
          {"--padded-vocab-size", "N", "no effect on texts: of a model", ""},
          {"--make-vocab-size-divisible-by", "N", "no effect on texts: of a model", ""},
          {"--no-pad-vocab-size", "", "no effect on texts: of a model"},
          {"--tokenizer-hf-no-use-fast", "", "no effect: one library, the same ids"},
          {"--use-gigatoken", "", "no effect: one library, the same ids"},
          {"--trust-remote-code", "", "refused: no code is ever run from data"}};
}

std::unique_ptr<tokenizers::Tokenizer> tokenizer_of(const Flags& flags) {
  // NullTokenizer's end token comes after the ids that --vocab-size counts, as in training.
  const bool null_tokenizer = flags.text("--tokenizer-type") == "NullTokenizer";
  PENTATRON_CHECK(!flags.has("--trust-remote-code"), kConfig,
                  "--trust-remote-code: no code is ever run from data; drop it");
  PENTATRON_CHECK(!flags.has("--null-tokenizer-eod-id") || null_tokenizer, kConfig,
                  "--null-tokenizer-eod-id is of --tokenizer-type NullTokenizer");
  const bool names_eod = flags.has("--null-tokenizer-eod-id");
  return tokenizers::make_tokenizer(tokenizers::TokenizerOptions{
      .tokenizer_type = flags.text("--tokenizer-type"),
      .vocab_file = flags.text("--vocab-file"),
      .merge_file = flags.text("--merge-file"),
      .tokenizer_model = flags.text("--tokenizer-model"),
      .tokenizer_special_tokens = flags.texts("--tokenizer-special-tokens"),
      .tiktoken_pattern = flags.text("--tiktoken-pattern"),
      .tiktoken_num_special_tokens = flags.integer("--tiktoken-num-special-tokens", 1),
      .hf_include_special_tokens = !flags.has("--tokenizer-hf-no-include-special-tokens"),
      .metadata = flags.text("--tokenizer-metadata"),
      .chat_template = {},
      .sentencepiece_legacy = flags.has("--tokenizer-sentencepiece-legacy"),
      .sentencepiece_ignore_extra_whitespaces =
          !flags.has("--no-tokenizer-sentencepiece-ignore-extra-whitespaces"),
      .vocab_size = flags.integer("--vocab-size", 0) + (null_tokenizer ? 1 : 0),
      .null_tokenizer_eod_id = names_eod ? flags.integer("--null-tokenizer-eod-id", 0) : -1});
}

}  // namespace pentatron::apps
