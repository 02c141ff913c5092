// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pentatron/datasets/indexed_dataset_writer.h"
#include "pentatron/datasets/line_encoder.h"
#include "pentatron/datasets/partial_run.h"

namespace pentatron::datasets {

// Where the batches of preprocess_data go: the corpora, the counts, the progress lines, and the
// state of a run that can be resumed. `options` must outlive it.
class PreprocessOutput final {
 public:
  PreprocessOutput(const PreprocessOptions& options, const tokenizers::Tokenizer& tokenizer,
                   const std::vector<InputFile>& files);

  // Where reading begins: the start, or the place of an earlier run.
  [[nodiscard]] const CorpusPlace& start() const { return place_; }

  // Batches in file order. A bad line under OnBadLine::kStop: kData, and nothing of its batch is
  // written; a run that can be resumed keeps its state.
  void write(const EncodedBatch& batch);
  // Everything under its final names.
  [[nodiscard]] PreprocessStats finish();

 private:
  void open_writers(TokenDtype dtype);
  void write_key(const EncodedKey& key, std::size_t k);
  void show_all();
  void report(const EncodedBatch& batch, const LineProblem& problem);
  void checkpoint();
  void show_progress(std::int64_t documents_before);
  [[nodiscard]] std::string progress_line(std::int64_t documents) const;
  [[nodiscard]] double elapsed() const;

  const PreprocessOptions& options_;
  std::vector<InputFile> files_;
  std::chrono::steady_clock::time_point start_time_;
  std::optional<PartialRun> partial_;
  std::vector<std::unique_ptr<IndexedDatasetWriter>> writers_;
  PreprocessStats stats_;
  CorpusPlace place_;
  std::uint64_t bytes_before_ = 0;         // of an earlier run
  std::uint64_t bytes_at_checkpoint_ = 0;  // of input
  std::optional<std::uint64_t> all_file_bytes_;
  std::optional<std::uint64_t> first_file_bytes_;  // used up after the first batch of this run
  std::uint64_t file_bytes_ = 0;
  std::int64_t documents_ = 0;  // of this run, empty ones too
};

}  // namespace pentatron::datasets
