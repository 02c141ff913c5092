// SPDX-License-Identifier: Apache-2.0
#include "pentatron/monitor/metrics_tail.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "pentatron/base/descriptor.h"

namespace pentatron::monitor {
namespace {

constexpr std::size_t kFingerprint = 64;  // bytes

// Up to `length` bytes at `offset`; fewer at the end of the file.
std::string read_at(int fd, std::uint64_t offset, std::size_t length) {
  std::string bytes(length, '\0');
  std::size_t done = 0;
  while (done < length) {
    const ssize_t got =
        ::pread(fd, bytes.data() + done, length - done, static_cast<off_t>(offset + done));
    if (got <= 0) break;
    done += static_cast<std::size_t>(got);
  }
  bytes.resize(done);
  return bytes;
}

}  // namespace

void MetricsTail::start_anew() {
  offset_ = 0;
  head_.clear();
  tail_.clear();
  partial_.clear();
  skipping_ = false;
  bad_lines_ = 0;
}

bool MetricsTail::still_the_same(int fd, dev_t device, ino_t inode, std::uint64_t size) const {
  if (device != device_ || inode != inode_ || size < offset_) return false;
  return read_at(fd, 0, head_.size()) == head_ &&
         read_at(fd, offset_ - tail_.size(), tail_.size()) == tail_;
}

MetricsTail::Result MetricsTail::poll(std::vector<Record>& records) {
  // No link is followed and no pipe waited for: the folder may hold anything.
  const Descriptor file(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat status {};
  if (file.get() < 0 || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
    open_before_ = false;
    start_anew();
    return Result::kGone;
  }
  changed_at_ = status.st_mtime;
  const auto size = static_cast<std::uint64_t>(status.st_size);
  size_ = size;
  Result result = Result::kNothingNew;
  if (!open_before_ || !still_the_same(file.get(), status.st_dev, status.st_ino, size)) {
    open_before_ = true;
    device_ = status.st_dev;
    inode_ = status.st_ino;
    start_anew();
    result = Result::kStartedAnew;
  }
  if (size == offset_) return result;
  const std::string bytes =
      read_at(file.get(), offset_,
              static_cast<std::size_t>(std::min<std::uint64_t>(size - offset_, kMaxBytesPerPoll)));
  if (bytes.empty()) return result;
  offset_ += bytes.size();
  if (head_.size() < kFingerprint)
    head_ = read_at(file.get(), 0, std::min<std::uint64_t>(kFingerprint, offset_));
  tail_ += bytes.substr(bytes.size() - std::min(bytes.size(), kFingerprint));
  if (tail_.size() > kFingerprint) tail_.erase(0, tail_.size() - kFingerprint);
  take(bytes, records);
  return result == Result::kNothingNew ? Result::kAppended : result;
}

void MetricsTail::take(std::string_view bytes, std::vector<Record>& records) {
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    const std::string_view piece = bytes.substr(0, end);
    if (!skipping_ && partial_.size() + piece.size() > kLongestLine) {
      skipping_ = true;
      partial_.clear();
      ++bad_lines_;
    }
    if (!skipping_) partial_ += piece;
    if (end == std::string_view::npos) return;
    if (!skipping_) take_line(partial_, records);
    partial_.clear();
    skipping_ = false;
    bytes.remove_prefix(end + 1);
  }
}

void MetricsTail::take_line(std::string_view line, std::vector<Record>& records) {
  if (line.find_first_not_of(" \t\r") == std::string_view::npos) return;
  if (std::optional<Record> record = parse_record(line)) {
    records.push_back(std::move(*record));
  } else {
    ++bad_lines_;
  }
}

}  // namespace pentatron::monitor
