// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "pentatron/datasets/byte_source.h"

namespace pentatron::datasets {

// A place between two lines of a file.
struct LinePlace {
  std::uint64_t bytes = 0;  // before it, unpacked
  std::int64_t line = 1;    // the line that follows
};

// A run of whole lines of a text file.
struct LineBatch {
  struct Line {
    std::int64_t number = 0;  // from 1
    std::size_t begin = 0;    // into `bytes`
    std::size_t size = 0;     // without the line feed
    bool too_long = false;    // over the limit: its bytes were dropped
  };
  std::string bytes;
  std::vector<Line> lines;
  std::uint64_t bytes_read = 0;  // unpacked; line feeds and dropped bytes counted
  LinePlace end;

  [[nodiscard]] std::string_view text(const Line& line) const {
    return std::string_view(bytes).substr(line.begin, line.size);
  }
  // Bytes from the line's first one on that may be read, other lines' too.
  [[nodiscard]] std::size_t readable(const Line& line) const { return bytes.size() - line.begin; }
};

struct LineReaderOptions {
  std::uint64_t max_line_bytes = 256ULL << 20;
  bool whole_file = false;        // line feeds are text: the file is one line
  bool stop_at_too_long = false;  // do not look for the end of a line over the limit
};

// Streams a source line by line in bounded memory. Lines end at a line feed; what stands after the
// last one is a line too, unless it is empty. Not safe from several threads at once.
class LineReader final {
 public:
  // `start`: passes over what stands before it. Errors are those of the source, here and later.
  LineReader(std::unique_ptr<ByteSource> source, const LineReaderOptions& options,
             const LinePlace& start = {});

  // The next lines, until about `target_bytes` are collected; no lines at the end of the file.
  [[nodiscard]] LineBatch next_batch(std::size_t target_bytes);

  [[nodiscard]] const ByteSource& source() const { return *source_; }

 private:
  bool fill();
  void finish_line(LineBatch& batch);
  void take(LineBatch& batch, std::string_view piece);

  std::unique_ptr<ByteSource> source_;
  LineReaderOptions options_;
  std::vector<char> chunk_;
  std::size_t chunk_at_ = 0;
  std::size_t chunk_size_ = 0;
  LinePlace place_;
  // State of the line under way.
  std::size_t line_begin_ = 0;
  bool line_open_ = false;
  bool line_too_long_ = false;
  bool stopped_ = false;
};

}  // namespace pentatron::datasets
