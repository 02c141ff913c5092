// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/encode_pipeline.h"

#include <exception>
#include <utility>

namespace pentatron::datasets {
namespace {

constexpr std::size_t kBatchBytes = 128 << 10;

std::vector<InputFormat> formats_of(const std::vector<InputFile>& files) {
  std::vector<InputFormat> formats;
  formats.reserve(files.size());
  for (const InputFile& file : files) formats.push_back(file.format);
  return formats;
}

}  // namespace

EncodePipeline::EncodePipeline(const PreprocessOptions& options,
                               const tokenizers::Tokenizer& tokenizer, std::vector<InputFile> files,
                               const CorpusPlace& start)
    : options_(options),
      tokenizer_(tokenizer),
      formats_(formats_of(files)),
      reader_(std::move(files),
              {.max_line_bytes = options.max_line_bytes,
               .stop_at_too_long = options.on_bad_line == OnBadLine::kStop},
              start),
      window_(2 * options.workers + 1) {
  try {
    for (std::int64_t i = 0; i < options.workers; ++i) threads_.emplace_back([this] { work(); });
  } catch (...) {
    stop();
    throw;
  }
}

std::optional<EncodedBatch> EncodePipeline::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_.contains(next_out_) || next_out_ == end_; });
  if (next_out_ == end_) return std::nullopt;
  EncodedBatch batch = std::move(done_.extract(next_out_).mapped());
  ++next_out_;
  bytes_under_way_ -= batch.bytes;
  lock.unlock();
  changed_.notify_all();
  if (batch.exception) std::rethrow_exception(batch.exception);
  return batch;
}

void EncodePipeline::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

// Reads the next lines and numbers them; -1 when there is nothing left to do.
std::int64_t EncodePipeline::read(CorpusBatch& batch) {
  batch = CorpusBatch();  // long lines are not held while others wait for room
  const std::lock_guard reading(read_mutex_);
  std::int64_t id = 0;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] {
      const bool room =
          next_in_ - next_out_ < window_ && bytes_under_way_ < options_.max_bytes_under_way;
      return stopped_ || end_ >= 0 || room;
    });
    if (stopped_ || end_ >= 0) return -1;
    id = next_in_++;
  }
  try {
    batch = reader_.next_batch(kBatchBytes);
  } catch (...) {
    EncodedBatch failed;
    failed.exception = std::current_exception();
    deliver(id, std::move(failed));
    batch = CorpusBatch();
    ++id;
  }
  const bool at_end = batch.lines.lines.empty();
  {
    const std::lock_guard lock(mutex_);
    if (at_end) end_ = id;
    bytes_under_way_ += batch.lines.bytes_read;
  }
  changed_.notify_all();
  return at_end ? -1 : id;
}

void EncodePipeline::deliver(std::int64_t id, EncodedBatch batch) {
  {
    const std::lock_guard lock(mutex_);
    done_.emplace(id, std::move(batch));
  }
  changed_.notify_all();
}

void EncodePipeline::work() {
  LineEncoder encoder(options_, tokenizer_);
  CorpusBatch lines;
  for (std::int64_t id = read(lines); id >= 0; id = read(lines)) {
    EncodedBatch batch;
    try {
      batch = encoder.encode(lines, formats_[lines.file]);
    } catch (...) {
      batch.exception = std::current_exception();
    }
    batch.bytes = lines.lines.bytes_read;
    deliver(id, std::move(batch));
  }
}

}  // namespace pentatron::datasets
