// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/line_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "pentatron/base/error.h"

namespace pentatron::datasets {
namespace {

constexpr std::size_t kChunkBytes = 1 << 18;

}  // namespace

LineReader::LineReader(std::string path, std::uint64_t max_line_bytes)
    : path_(std::move(path)), max_line_bytes_(max_line_bytes), chunk_(kChunkBytes) {
  fd_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  PENTATRON_CHECK(fd_ >= 0, kIo, "cannot open {}: {}", path_,
                  std::generic_category().message(errno));
  struct stat info {};
  if (::fstat(fd_, &info) == 0 && S_ISDIR(info.st_mode)) {
    ::close(fd_);
    PENTATRON_THROW(kIo, "cannot read {}: it is a folder", path_);
  }
}

LineReader::~LineReader() { ::close(fd_); }

bool LineReader::fill() {
  ssize_t count = 0;
  do {
    count = ::read(fd_, chunk_.data(), chunk_.size());
  } while (count < 0 && errno == EINTR);
  PENTATRON_CHECK(count >= 0, kIo, "cannot read {}: {}", path_,
                  std::generic_category().message(errno));
  chunk_at_ = 0;
  chunk_size_ = static_cast<std::size_t>(count);
  return count > 0;
}

void LineReader::take(LineBatch& batch, std::string_view piece) {
  if (!line_open_) {
    line_begin_ = batch.bytes.size();
    line_open_ = true;
    line_too_long_ = false;
  }
  if (line_too_long_) return;
  if (batch.bytes.size() - line_begin_ + piece.size() > max_line_bytes_) {
    line_too_long_ = true;
    batch.bytes.resize(line_begin_);
    return;
  }
  batch.bytes += piece;
}

void LineReader::finish_line(LineBatch& batch) {
  batch.lines.push_back(
      {line_number_, line_begin_, batch.bytes.size() - line_begin_, line_too_long_});
  ++line_number_;
  line_open_ = false;
}

LineBatch LineReader::next_batch(std::size_t target_bytes) {
  LineBatch batch;
  while (line_open_ || batch.bytes_read < target_bytes) {
    if (chunk_at_ == chunk_size_ && !fill()) {
      if (line_open_) finish_line(batch);
      break;
    }
    const char* begin = chunk_.data() + chunk_at_;
    const std::size_t left = chunk_size_ - chunk_at_;
    const void* found = std::memchr(begin, '\n', left);
    const std::size_t size =
        found == nullptr ? left : static_cast<std::size_t>(static_cast<const char*>(found) - begin);
    take(batch, std::string_view(begin, size));
    chunk_at_ += size;
    batch.bytes_read += size;
    if (found != nullptr) {
      ++chunk_at_;
      ++batch.bytes_read;
      finish_line(batch);
    }
  }
  return batch;
}

}  // namespace pentatron::datasets
