// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pentatron/datasets/corpus_reader.h"
#include "pentatron/datasets/jsonl.h"
#include "pentatron/datasets/preprocess.h"

namespace pentatron::datasets {

struct LineProblem {
  std::int64_t line = 0;
  JsonlProblem what;
};

// The texts of a batch of lines, in order.
struct ParsedBatch {
  struct Piece {
    std::size_t begin = 0;  // into `bytes`
    std::size_t size = 0;
  };
  // A document, or what is wrong with its line; blank lines are none.
  struct Document {
    std::int64_t line = 0;
    std::optional<LineProblem> problem;
  };
  std::string bytes;
  std::vector<Piece> pieces;            // document after document, key after key
  std::vector<std::size_t> num_pieces;  // of each key of each document without a problem
  std::vector<Document> documents;
  std::int64_t lines = 0;
  std::int64_t blank_lines = 0;
  std::uint64_t bytes_read = 0;
  std::size_t file = 0;
  CorpusPlace end;
  std::uint64_t file_bytes = 0;

  [[nodiscard]] std::string_view text(const Piece& piece) const {
    return std::string_view(bytes).substr(piece.begin, piece.size);
  }
};

// Turns lines into texts; one a thread. `options` must outlive it.
class LineParser final {
 public:
  explicit LineParser(const PreprocessOptions& options)
      : options_(options), parser_(options.json_keys) {}

  // Under OnBadLine::kStop nothing follows a line with a problem.
  [[nodiscard]] ParsedBatch parse(const CorpusBatch& batch, InputFormat format);
  // Gives back the memory that long lines needed. Best once their tokens are made, too: memory that
  // is free between the two would only be held beside what tokens need.
  void release_large_buffers() { parser_.release_large_buffers(); }

 private:
  [[nodiscard]] std::optional<LineProblem> parse_line(const LineBatch& lines,
                                                      const LineBatch::Line& line,
                                                      InputFormat format, ParsedBatch& parsed);
  static void add_piece(std::string_view text, ParsedBatch& parsed);

  const PreprocessOptions& options_;
  JsonlParser parser_;
};

}  // namespace pentatron::datasets
