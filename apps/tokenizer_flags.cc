// SPDX-License-Identifier: Apache-2.0
#include "apps/tokenizer_flags.h"

#include "pentatron/tokenizers/tokenizer_factory.h"

namespace pentatron::apps {

std::vector<Flags::Spec> tokenizer_flags(bool required) {
  return {{"--tokenizer-type", "TYPE",
           "GPT2BPETokenizer, HuggingFaceTokenizer, TikTokenizer, SentencePieceTokenizer, "
           "Llama2Tokenizer, BertWordPieceLowerCase, BertWordPieceCase or NullTokenizer",
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
          {"--vocab-size", "N", "vocabulary of the NullTokenizer", "0"}};
}

std::unique_ptr<tokenizers::Tokenizer> tokenizer_of(const Flags& flags) {
  // NullTokenizer's end token comes after the ids that --vocab-size counts, as in training.
  const bool null_tokenizer = flags.text("--tokenizer-type") == "NullTokenizer";
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
      .vocab_size = flags.integer("--vocab-size", 0) + (null_tokenizer ? 1 : 0)});
}

}  // namespace pentatron::apps
