// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "pentatron/datasets/line_reader.h"

namespace pentatron::datasets {

// The lines of text files ("-": standard input; packed ones, too), one after the other, in bounded
// memory. Not safe from several threads at once.
class TextLines final {
 public:
  using Progress = std::function<void(std::int64_t lines, std::uint64_t bytes)>;

  // Longer lines than `max_bytes` are left out and counted.
  TextLines(std::vector<std::string> paths, std::size_t max_bytes, Progress progress = {});

  // The next line, without its line feed, valid until the next call; false at the end. Errors:
  // those of the files.
  [[nodiscard]] bool next(std::string_view& line);
  [[nodiscard]] std::int64_t left_out() const { return left_out_; }

 private:
  bool fill();

  std::vector<std::string> paths_;
  std::size_t max_bytes_;
  Progress progress_;
  std::size_t path_ = 0;
  std::unique_ptr<LineReader> reader_;
  LineBatch batch_;
  std::size_t at_ = 0;
  std::int64_t left_out_ = 0;
  std::int64_t lines_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace pentatron::datasets
