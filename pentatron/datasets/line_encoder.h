// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string_view>
#include <vector>

#include "pentatron/datasets/corpus_reader.h"
#include "pentatron/datasets/jsonl.h"
#include "pentatron/datasets/preprocess.h"

namespace pentatron::datasets {

// The documents of a batch of lines for one key, in order.
struct EncodedKey {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> lengths;    // of the sequences
  std::vector<std::int32_t> sequences;  // of each document; 0: an empty one
};

struct EncodedBatch {
  struct Problem {
    std::int64_t line = 0;
    JsonlProblem what;
  };
  std::vector<EncodedKey> keys;
  std::vector<Problem> problems;
  std::int64_t documents = 0;
  std::int64_t lines = 0;
  std::int64_t blank_lines = 0;
  std::uint64_t bytes = 0;
  std::size_t file = 0;
  CorpusPlace end;
  std::uint64_t file_bytes = 0;
  std::exception_ptr exception = {};  // anything but a bad line
};

// Turns lines into tokens; one per worker. `options` and `tokenizer` must outlive it.
class LineEncoder final {
 public:
  LineEncoder(const PreprocessOptions& options, const tokenizers::Tokenizer& tokenizer)
      : options_(options), tokenizer_(tokenizer), parser_(options.json_keys) {}

  [[nodiscard]] EncodedBatch encode(const CorpusBatch& batch, InputFormat format);

 private:
  using Texts = std::vector<std::vector<std::string_view>>;  // pieces of each key

  void encode_line(std::string_view text, const LineBatch::Line& line, InputFormat format,
                   EncodedBatch& batch);
  [[nodiscard]] std::optional<JsonlProblem> encode_texts(const Texts& texts, EncodedBatch& batch);
  void encode_piece(std::string_view text, EncodedKey& key, std::int32_t& sequences);

  const PreprocessOptions& options_;
  const tokenizers::Tokenizer& tokenizer_;
  JsonlParser parser_;
  Texts plain_{{}};
};

}  // namespace pentatron::datasets
