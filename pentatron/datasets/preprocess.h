// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace pentatron::tokenizers {
class Tokenizer;
}

namespace pentatron::datasets {

struct PreprocessOptions {
  std::string input;                              // JSONL file, one object a line
  std::vector<std::string> json_keys = {"text"};  // each key becomes a corpus of its own
  bool append_eod = false;                        // end every document with the tokenizer's EOD
  std::int64_t workers = 1;                       // threads that parse and tokenise
  std::string output_prefix;
  std::int64_t log_interval = 1000;  // documents between progress lines; 0: none
  bool skip_bad_lines = false;       // count lines that cannot be used instead of failing
  bool force = false;                // replace existing output
  std::uint64_t max_line_bytes = 256ULL << 20;
  std::function<void(std::string_view)> on_progress;  // unset: the log
};

struct PreprocessStats {
  struct Key {
    std::string output_prefix;  // PREFIX_KEY_document
    std::int64_t documents = 0;
    std::int64_t empty_documents = 0;  // no token: left out, with append_eod too
    std::int64_t tokens = 0;           // EOD included
  };
  std::vector<Key> keys;  // in the order of json_keys
  std::int64_t lines = 0;
  std::int64_t blank_lines = 0;  // only whitespace: no document, no error
  std::int64_t bad_lines = 0;    // skipped with skip_bad_lines
  std::uint64_t bytes = 0;       // of input
  double seconds = 0;
};

// Tokenises a JSONL corpus into `{output_prefix}_{key}_document.bin/.idx`. A string is one
// sequence, an array of strings one document of several. Documents keep the order of the lines; the
// files are byte for byte the same for any number of workers. Memory is bounded whatever the size
// of the corpus (4 to 8 bytes a document are kept for the index). Nothing appears under a final
// name before all of the input has been read. The tokenizer's encode() must be safe from several
// threads.
//
// Errors: kConfig for options, existing output without `force`; kIo; kData with `file:line:column`
// for the first line that is not a JSON object in valid UTF-8, lacks a key, holds no text there, or
// is over max_line_bytes, and for a corpus without documents.
PreprocessStats preprocess(const PreprocessOptions& options,
                           const tokenizers::Tokenizer& tokenizer);

}  // namespace pentatron::datasets
