// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "apps/command.h"
#include "pentatron/base/log.h"
#include "pentatron/datasets/preprocess.h"
#include "pentatron/tokenizers/tokenizer_factory.h"

namespace pentatron::apps {

int preprocess_data(const Words& words) {
  const Flags flags(
      "preprocess_data",
      "Tokenises a JSONL file (one object a line) into PREFIX_KEY_document.bin and .idx, one pair "
      "a key.",
      {},
      {{"--input", "FILE", "JSONL file", "", true},
       {"--output-prefix", "PREFIX", "begin of the output names", "", true},
       {"--json-keys", "KEY", "keys that hold text", "text", false, true},
       {"--tokenizer-type", "TYPE",
        "GPT2BPETokenizer, HuggingFaceTokenizer, TikTokenizer, SentencePieceTokenizer, "
        "Llama2Tokenizer, BertWordPieceLowerCase, BertWordPieceCase or NullTokenizer",
        "", true},
       {"--tokenizer-model", "PATH",
        "folder or file of HuggingFaceTokenizer (tokenizer.json), TikTokenizer or SentencePiece",
        ""},
       {"--tokenizer-special-tokens", "TOKEN ...", "special tokens to add", "", false, true},
       {"--tiktoken-pattern", "v1|v2", "how TikTokenizer cuts text into words", ""},
       {"--tiktoken-num-special-tokens", "N", "ids that TikTokenizer keeps", "1000"},
       {"--tokenizer-hf-no-include-special-tokens", "",
        "leave out the tokens that a tokenizer.json puts around each text"},
       {"--vocab-file", "FILE", "vocab.json", ""},
       {"--merge-file", "FILE", "merges.txt", ""},
       {"--vocab-size", "N", "vocabulary of the NullTokenizer", "0"},
       {"--append-eod", "", "end every document with the end-of-document token"},
       {"--workers", "N", "threads that tokenise", "1"},
       {"--log-interval", "N", "documents between progress lines; 0: none", "1000"},
       {"--skip-bad-lines", "", "count lines that cannot be used instead of stopping at the first"},
       {"--force", "", "replace existing output"}},
      words);
  if (flags.help()) return 0;
  // NullTokenizer's end token comes after the ids that --vocab-size counts, as in training.
  const bool null_tokenizer = flags.text("--tokenizer-type") == "NullTokenizer";
  const auto tokenizer = tokenizers::make_tokenizer(tokenizers::TokenizerOptions{
      .tokenizer_type = flags.text("--tokenizer-type"),
      .vocab_file = flags.text("--vocab-file"),
      .merge_file = flags.text("--merge-file"),
      .tokenizer_model = flags.text("--tokenizer-model"),
      .tokenizer_special_tokens = flags.texts("--tokenizer-special-tokens"),
      .tiktoken_pattern = flags.text("--tiktoken-pattern"),
      .tiktoken_num_special_tokens = flags.integer("--tiktoken-num-special-tokens", 1),
      .hf_include_special_tokens = !flags.has("--tokenizer-hf-no-include-special-tokens"),
      .vocab_size = flags.integer("--vocab-size", 0) + (null_tokenizer ? 1 : 0)});
  const datasets::PreprocessStats stats =
      datasets::preprocess({.input = flags.text("--input"),
                            .json_keys = flags.texts("--json-keys"),
                            .append_eod = flags.has("--append-eod"),
                            .workers = flags.integer("--workers", 1),
                            .output_prefix = flags.text("--output-prefix"),
                            .log_interval = flags.integer("--log-interval", 0),
                            .skip_bad_lines = flags.has("--skip-bad-lines"),
                            .force = flags.has("--force"),
                            .on_progress = {}},
                           *tokenizer);
  for (const auto& key : stats.keys) {
    log::print_line(
        fmt::format("{}.bin, .idx: {} documents, {} tokens, {} empty documents left out",
                    key.output_prefix, key.documents, key.tokens, key.empty_documents));
  }
  if (stats.bad_lines > 0)
    log::warn("{} of {} lines were skipped as bad", stats.bad_lines, stats.lines);
  return 0;
}

}  // namespace pentatron::apps
