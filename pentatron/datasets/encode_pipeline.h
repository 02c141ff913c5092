// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "pentatron/datasets/corpus_reader.h"
#include "pentatron/datasets/line_encoder.h"

namespace pentatron::datasets {

// Workers take batches of lines in file order, encode them side by side, and hand them over in file
// order. The bytes under way are limited, and so is the memory. `options` and `tokenizer` must
// outlive it.
class EncodePipeline final {
 public:
  EncodePipeline(const PreprocessOptions& options, const tokenizers::Tokenizer& tokenizer,
                 std::vector<InputFile> files, const CorpusPlace& start);
  ~EncodePipeline() { stop(); }
  EncodePipeline(const EncodePipeline&) = delete;
  EncodePipeline& operator=(const EncodePipeline&) = delete;

  // The next batch in file order; none at the end.
  [[nodiscard]] std::optional<EncodedBatch> next();

 private:
  void stop();
  [[nodiscard]] std::int64_t read(CorpusBatch& batch);
  void deliver(std::int64_t id, EncodedBatch batch);
  void work();

  const PreprocessOptions& options_;
  const tokenizers::Tokenizer& tokenizer_;
  std::vector<InputFormat> formats_;  // of the files
  CorpusReader reader_;
  std::int64_t window_;
  std::mutex read_mutex_;  // taken before mutex_
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::int64_t, EncodedBatch> done_;
  std::int64_t next_in_ = 0;
  std::int64_t next_out_ = 0;
  std::int64_t end_ = -1;  // number of batches, once known
  std::uint64_t bytes_under_way_ = 0;
  bool stopped_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace pentatron::datasets
