// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pentatron::tokenizers {
class Tokenizer;
}

namespace pentatron::datasets {

enum class OnBadLine {
  kStop,    // the first one ends the run
  kSkip,    // counted; the first few are named
  kReport,  // counted; each is named
};

struct PreprocessOptions {
  std::vector<std::string> inputs;  // as list_inputs() reads them
  std::string txt_documents;        // what is a document in .txt files: "line", "file"
  std::vector<std::string> json_keys = {"text"};  // each key becomes a corpus of its own
  bool split_sentences = false;                   // each sentence a sequence; PREFIX_KEY_sentence
  bool keep_newlines = false;                     // sentences keep the white space after them
  bool append_eod = false;                        // end every document with the tokenizer's EOD
  std::int64_t workers = 1;                       // threads that tokenise; one reads, one writes
  std::int64_t partitions = 1;                    // must divide workers; changes nothing else
  std::string output_prefix;
  std::int64_t log_interval = 1000;  // documents between progress lines; 0: none
  OnBadLine on_bad_line = OnBadLine::kStop;
  bool force = false;   // replace existing output
  bool resume = false;  // keep what is unfinished in PREFIX.partial, and go on with it
  std::uint64_t max_line_bytes = 256ULL << 20;
  std::uint64_t max_bytes_under_way = 64ULL << 20;  // of lines read and not yet written
  std::uint64_t checkpoint_bytes = 256ULL << 20;    // of input between two states of `resume`
  std::function<void(std::string_view)> on_progress = {};  // unset: the log
};

struct PreprocessStats {
  struct Key {
    std::string output_prefix;  // PREFIX_KEY_document
    std::int64_t documents = 0;
    std::int64_t empty_documents = 0;  // no token: left out, with append_eod too
    std::int64_t sequences = 0;
    std::int64_t tokens = 0;  // EOD included
  };
  std::vector<Key> keys;  // in the order of json_keys
  std::int64_t lines = 0;
  std::int64_t blank_lines = 0;  // only whitespace: no document, no error
  std::int64_t bad_lines = 0;    // unless on_bad_line is kStop
  std::uint64_t bytes = 0;       // of input, unpacked
  double seconds = 0;            // of this process
};

// Tokenises text into `{output_prefix}_{key}_document.bin/.idx` (`_sentence` with split_sentences).
// A string is one sequence, an array of strings one document of several. Documents keep the order
// of the files and lines; the output is byte for byte the same for any number of workers. Memory
// does not grow with the corpus: max_bytes_under_way, one line, and their tokens. Nothing appears
// under a final name before all of the input has been read; an error or a full disk leaves nothing
// but, with `resume`, PREFIX.partial. The tokenizer's encode() must be safe from several threads.
//
// Errors: kConfig for options, existing output without `force`, a partial run of other options or
// inputs; kIo; kData with `file:line:column` for the first line that is not a JSON object in valid
// UTF-8, lacks a key, holds no text there, or is over max_line_bytes, and for a corpus without
// documents.
PreprocessStats preprocess(const PreprocessOptions& options,
                           const tokenizers::Tokenizer& tokenizer);

struct WorkerRate {
  std::int64_t workers = 0;
  std::int64_t documents = 0;
  double documents_per_second = 0;
};

// Tokenises up to `max_documents` of the input with each number of workers and writes nothing.
// Standard input cannot be read twice: kConfig.
[[nodiscard]] std::vector<WorkerRate> measure_workers(const PreprocessOptions& options,
                                                      const tokenizers::Tokenizer& tokenizer,
                                                      std::span<const std::int64_t> worker_counts,
                                                      std::int64_t max_documents);

}  // namespace pentatron::datasets
