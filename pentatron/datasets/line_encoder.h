// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "pentatron/datasets/line_parser.h"

namespace pentatron::datasets {

// The documents of a batch of lines for one key, in order.
struct EncodedKey {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> lengths;    // of the sequences
  std::vector<std::int32_t> sequences;  // of each document; 0: an empty one
};

struct EncodedBatch {
  std::vector<EncodedKey> keys;
  std::vector<LineProblem> problems;
  std::int64_t documents = 0;
  std::int64_t lines = 0;
  std::int64_t blank_lines = 0;
  std::uint64_t bytes = 0;
  std::size_t file = 0;
  CorpusPlace end;
  std::uint64_t file_bytes = 0;
  std::exception_ptr exception = {};  // anything but a bad line
};

// Turns texts into tokens; one per worker. `options` and `tokenizer` must outlive it.
class LineEncoder final {
 public:
  LineEncoder(const PreprocessOptions& options, const tokenizers::Tokenizer& tokenizer)
      : options_(options), tokenizer_(tokenizer) {}

  // `spare`: a batch whose memory may be used.
  [[nodiscard]] EncodedBatch encode(const ParsedBatch& batch, EncodedBatch spare = {});

 private:
  // Pieces of each key.
  using Texts = std::span<const std::span<const ParsedBatch::Piece>>;

  [[nodiscard]] std::optional<JsonlProblem> encode_texts(const ParsedBatch& batch, Texts texts,
                                                         EncodedBatch& encoded);
  void encode_text(std::string_view text, EncodedKey& key, std::int32_t& sequences);
  void encode_piece(std::string_view text, EncodedKey& key, std::int32_t& sequences);

  const PreprocessOptions& options_;
  const tokenizers::Tokenizer& tokenizer_;
};

}  // namespace pentatron::datasets
