// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <variant>
#include <vector>

#include "pentatron/datasets/corpus_reader.h"
#include "pentatron/datasets/line_encoder.h"
#include "pentatron/datasets/line_parser.h"

namespace pentatron::datasets {

// One thread reads batches of lines in file order; workers encode them side by side and hand them
// over in file order; next()'s thread writes them. While workers have enough to do, the reading
// thread parses lines too, so that with one worker tokenising is all that this worker does; a batch
// that it found no time for is parsed by the worker that takes it. The bytes under way are limited,
// and so is the memory. `options` and `tokenizer` must outlive it.
class EncodePipeline final {
 public:
  EncodePipeline(const PreprocessOptions& options, const tokenizers::Tokenizer& tokenizer,
                 std::vector<InputFile> files, const CorpusPlace& start);
  ~EncodePipeline() { stop(); }
  EncodePipeline(const EncodePipeline&) = delete;
  EncodePipeline& operator=(const EncodePipeline&) = delete;

  // The next batch in file order; none at the end.
  [[nodiscard]] std::optional<EncodedBatch> next();
  // A batch that next() gave and nobody needs: its memory is used again.
  void give_back(EncodedBatch batch);

 private:
  struct Waiting {
    std::int64_t id = -1;  // none yet
    std::variant<CorpusBatch, ParsedBatch> lines;
  };

  void stop();
  void read();
  [[nodiscard]] bool wait_for_room();
  void hand_over(Waiting waiting);
  void finish_reading();
  [[nodiscard]] std::optional<Waiting> take();
  void deliver(std::int64_t id, EncodedBatch batch);
  [[nodiscard]] EncodedBatch spare_batch();
  void work();

  const PreprocessOptions& options_;
  const tokenizers::Tokenizer& tokenizer_;
  std::vector<InputFormat> formats_;  // of the files
  CorpusReader reader_;               // of the reading thread
  std::int64_t window_;
  std::mutex mutex_;
  // Each for those who wait for one thing: a thread woken for nothing takes a core from a worker.
  std::condition_variable room_;     // the reading thread
  std::condition_variable lines_;    // workers
  std::condition_variable encoded_;  // next()
  std::deque<Waiting> waiting_;
  std::map<std::int64_t, EncodedBatch> done_;
  std::vector<EncodedBatch> spare_;
  std::int64_t next_in_ = 0;
  std::int64_t next_out_ = 0;
  std::int64_t end_ = -1;  // number of batches, once known
  std::uint64_t bytes_under_way_ = 0;
  bool stopped_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace pentatron::datasets
