// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/corpus_reader.h"

#include <utility>

namespace pentatron::datasets {

CorpusReader::CorpusReader(std::vector<InputFile> files, const LineReaderOptions& options,
                           const CorpusPlace& start)
    : files_(std::move(files)), options_(options), file_(start.file) {
  for (std::size_t i = 0; i < file_; ++i) bytes_of_earlier_files_ += files_[i].bytes.value_or(0);
  if (file_ < files_.size()) open(file_, start.in_file);
}

void CorpusReader::open(std::size_t file, const LinePlace& start) {
  LineReaderOptions options = options_;
  options.whole_file = files_[file].format == InputFormat::kTextFile;
  reader_.emplace(open_byte_source(files_[file].path), options, start);
}

CorpusBatch CorpusReader::next_batch(std::size_t target_bytes) {
  CorpusBatch batch;
  while (file_ < files_.size()) {
    batch.lines = reader_->next_batch(target_bytes);
    batch.file = file_;
    batch.end = {file_, batch.lines.end};
    batch.file_bytes = bytes_of_earlier_files_ + reader_->source().file_bytes();
    if (!batch.lines.lines.empty()) return batch;
    bytes_of_earlier_files_ = batch.file_bytes;
    ++file_;
    if (file_ < files_.size()) open(file_, {});
  }
  return {};
}

}  // namespace pentatron::datasets
