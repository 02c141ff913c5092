// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/encode_pipeline.h"

#include <malloc.h>

#include <exception>
#include <utility>

namespace pentatron::datasets {
namespace {

constexpr std::size_t kBatchBytes = 128 << 10;
constexpr std::size_t kLongLines = 4 * kBatchBytes;  // bytes of a batch

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
      window_(2 * options.workers + 3) {
  try {
    threads_.emplace_back([this] { read(); });
    for (std::int64_t i = 0; i < options.workers; ++i) threads_.emplace_back([this] { work(); });
  } catch (...) {
    stop();
    throw;
  }
}

std::optional<EncodedBatch> EncodePipeline::next() {
  std::unique_lock lock(mutex_);
  encoded_.wait(lock, [&] { return done_.contains(next_out_) || next_out_ == end_; });
  if (next_out_ == end_) return std::nullopt;
  EncodedBatch batch = std::move(done_.extract(next_out_).mapped());
  ++next_out_;
  bytes_under_way_ -= batch.bytes;
  lock.unlock();
  room_.notify_one();
  if (batch.exception) std::rethrow_exception(batch.exception);
  return batch;
}

void EncodePipeline::give_back(EncodedBatch batch) {
  // Those of long lines are too large to keep.
  constexpr std::size_t kMaxTokens = 4 * kBatchBytes;
  for (const EncodedKey& key : batch.keys) {
    if (key.tokens.capacity() > kMaxTokens) return;
  }
  const std::lock_guard lock(mutex_);
  if (std::ssize(spare_) < window_) spare_.push_back(std::move(batch));
}

EncodedBatch EncodePipeline::spare_batch() {
  const std::lock_guard lock(mutex_);
  if (spare_.empty()) return {};
  EncodedBatch batch = std::move(spare_.back());
  spare_.pop_back();
  return batch;
}

void EncodePipeline::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  room_.notify_all();
  lines_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

bool EncodePipeline::wait_for_room() {
  std::unique_lock lock(mutex_);
  room_.wait(lock, [&] {
    const bool room =
        next_in_ - next_out_ < window_ && bytes_under_way_ < options_.max_bytes_under_way;
    return stopped_ || room;
  });
  return !stopped_;
}

// Numbers the batches.
void EncodePipeline::read() {
  LineParser parser(options_);
  while (wait_for_room()) {
    Waiting waiting;
    try {
      CorpusBatch batch = reader_.next_batch(kBatchBytes);
      if (batch.lines.lines.empty()) return finish_reading();
      bool workers_wait = false;
      {
        const std::lock_guard lock(mutex_);
        waiting.id = next_in_++;
        bytes_under_way_ += batch.lines.bytes_read;
        workers_wait = waiting_.empty();
      }
      // Long lines take a lot of memory to parse: only where they are turned into tokens at once.
      if (workers_wait || batch.lines.bytes.size() > kLongLines) {
        waiting.lines = std::move(batch);
      } else {
        waiting.lines = parser.parse(batch, formats_[batch.file]);
      }
    } catch (...) {
      EncodedBatch failed;
      failed.exception = std::current_exception();
      const std::lock_guard lock(mutex_);
      if (waiting.id < 0) waiting.id = next_in_++;
      done_.emplace(waiting.id, std::move(failed));
      end_ = next_in_;
      lines_.notify_all();
      encoded_.notify_one();
      return;
    }
    hand_over(std::move(waiting));
  }
}

void EncodePipeline::hand_over(Waiting waiting) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(waiting));
  }
  lines_.notify_one();
}

void EncodePipeline::finish_reading() {
  {
    const std::lock_guard lock(mutex_);
    end_ = next_in_;
  }
  lines_.notify_all();
  encoded_.notify_one();
}

// None when there is nothing left to do.
std::optional<EncodePipeline::Waiting> EncodePipeline::take() {
  std::unique_lock lock(mutex_);
  lines_.wait(lock, [&] { return stopped_ || !waiting_.empty() || end_ >= 0; });
  if (stopped_ || waiting_.empty()) return std::nullopt;
  Waiting waiting = std::move(waiting_.front());
  waiting_.pop_front();
  return waiting;
}

void EncodePipeline::deliver(std::int64_t id, EncodedBatch batch) {
  bool is_next = false;
  {
    const std::lock_guard lock(mutex_);
    done_.emplace(id, std::move(batch));
    is_next = id == next_out_;
  }
  if (is_next) encoded_.notify_one();
}

void EncodePipeline::work() {
  LineParser parser(options_);
  LineEncoder encoder(options_, tokenizer_);
  while (std::optional<Waiting> waiting = take()) {
    EncodedBatch encoded;
    std::uint64_t bytes = 0;
    try {
      if (const auto* raw = std::get_if<CorpusBatch>(&waiting->lines)) {
        bytes = raw->lines.bytes_read;
        ParsedBatch parsed = parser.parse(*raw, formats_[raw->file]);
        waiting->lines = std::move(parsed);  // long lines are not held twice
      }
      const auto& parsed = std::get<ParsedBatch>(waiting->lines);
      bytes = parsed.bytes_read;
      encoded = encoder.encode(parsed, spare_batch());
    } catch (...) {
      encoded.exception = std::current_exception();
    }
    encoded.bytes = bytes;
    parser.release_large_buffers();
    deliver(waiting->id, std::move(encoded));
    if (bytes > kLongLines) {
      // Else what one thread has freed is held for that thread, and all of them have had long
      // lines.
      waiting.reset();
      ::malloc_trim(0);
    }
  }
}

}  // namespace pentatron::datasets
