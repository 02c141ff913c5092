// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/line_reader.h"

#include <cstring>
#include <utility>

namespace pentatron::datasets {
namespace {

constexpr std::size_t kChunkBytes = 1 << 18;

}  // namespace

LineReader::LineReader(std::unique_ptr<ByteSource> source, const LineReaderOptions& options,
                       const LinePlace& start)
    : source_(std::move(source)), options_(options), chunk_(kChunkBytes), place_(start) {
  if (start.bytes > 0) source_->skip(start.bytes);
}

bool LineReader::fill() {
  chunk_at_ = 0;
  chunk_size_ = source_->read(chunk_);
  return chunk_size_ > 0;
}

void LineReader::take(LineBatch& batch, std::string_view piece) {
  if (!line_open_) {
    line_begin_ = batch.bytes.size();
    line_open_ = true;
    line_too_long_ = false;
  }
  if (line_too_long_) return;
  if (batch.bytes.size() - line_begin_ + piece.size() > options_.max_line_bytes) {
    line_too_long_ = true;
    stopped_ = options_.stop_at_too_long;
    batch.bytes.resize(line_begin_);
    return;
  }
  batch.bytes += piece;
}

void LineReader::finish_line(LineBatch& batch) {
  batch.lines.push_back(
      {place_.line, line_begin_, batch.bytes.size() - line_begin_, line_too_long_});
  ++place_.line;
  line_open_ = false;
}

LineBatch LineReader::next_batch(std::size_t target_bytes) {
  LineBatch batch;
  batch.bytes.reserve(target_bytes + target_bytes / 8);  // the last line goes beyond the target
  while (!stopped_ && (line_open_ || batch.bytes_read < target_bytes)) {
    if (chunk_at_ == chunk_size_ && !fill()) break;
    const char* begin = chunk_.data() + chunk_at_;
    const std::size_t left = chunk_size_ - chunk_at_;
    const void* found = options_.whole_file ? nullptr : std::memchr(begin, '\n', left);
    const std::size_t size =
        found == nullptr ? left : static_cast<std::size_t>(static_cast<const char*>(found) - begin);
    take(batch, std::string_view(begin, size));
    const std::size_t used = size + (found == nullptr ? 0 : 1);
    chunk_at_ += used;
    batch.bytes_read += used;
    if (found != nullptr) finish_line(batch);
  }
  if (line_open_) finish_line(batch);
  place_.bytes += batch.bytes_read;
  batch.end = place_;
  return batch;
}

}  // namespace pentatron::datasets
