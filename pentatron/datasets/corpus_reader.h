// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "pentatron/datasets/input_files.h"
#include "pentatron/datasets/line_reader.h"

namespace pentatron::datasets {

// A place between two lines of several files.
struct CorpusPlace {
  std::size_t file = 0;
  LinePlace in_file;
};

struct CorpusBatch {
  LineBatch lines;               // of one file; none: the end of all files
  std::size_t file = 0;          // that they come from
  CorpusPlace end;               // where the next batch begins
  std::uint64_t file_bytes = 0;  // used up of all files so far, as they lie on disk
};

// Lines of several files, one file after the other. Not safe from several threads at once.
class CorpusReader final {
 public:
  // Opens the first file, so that one that cannot be used is found before anything is written.
  CorpusReader(std::vector<InputFile> files, const LineReaderOptions& options,
               const CorpusPlace& start = {});

  [[nodiscard]] CorpusBatch next_batch(std::size_t target_bytes);

 private:
  void open(std::size_t file, const LinePlace& start);

  std::vector<InputFile> files_;
  LineReaderOptions options_;
  std::size_t file_ = 0;
  std::uint64_t bytes_of_earlier_files_ = 0;
  std::optional<LineReader> reader_;
};

}  // namespace pentatron::datasets
