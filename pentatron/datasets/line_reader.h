// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pentatron::datasets {

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
  std::uint64_t bytes_read = 0;  // of the file, line feeds and dropped bytes counted

  [[nodiscard]] std::string_view text(const Line& line) const {
    return std::string_view(bytes).substr(line.begin, line.size);
  }
};

// Streams a file line by line in bounded memory. Lines end at a line feed; what stands after the
// last one is a line too, unless it is empty. Not safe from several threads at once.
class LineReader final {
 public:
  // ErrorKind::kIo when the file cannot be opened, here, or read, later.
  LineReader(std::string path, std::uint64_t max_line_bytes);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  // The next lines, until about `target_bytes` are collected; no lines at the end of the file.
  [[nodiscard]] LineBatch next_batch(std::size_t target_bytes);

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  bool fill();
  void finish_line(LineBatch& batch);
  void take(LineBatch& batch, std::string_view piece);

  std::string path_;
  std::uint64_t max_line_bytes_;
  int fd_ = -1;
  std::vector<char> chunk_;
  std::size_t chunk_at_ = 0;
  std::size_t chunk_size_ = 0;
  std::int64_t line_number_ = 1;
  // State of the line under way.
  std::size_t line_begin_ = 0;
  bool line_open_ = false;
  bool line_too_long_ = false;
};

}  // namespace pentatron::datasets
