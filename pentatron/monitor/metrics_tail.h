// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "pentatron/monitor/record.h"

namespace pentatron::monitor {

// Follows a metrics file that another process writes. Reads only what is new; a file that was
// rewritten, replaced or cut off is read anew. Lines that are no records are counted and skipped;
// a line longer than kLongestLine is skipped without being kept in memory.
class MetricsTail final {
 public:
  static constexpr std::size_t kLongestLine = 1 << 18;
  static constexpr std::size_t kMaxBytesPerPoll = 1 << 20;

  explicit MetricsTail(std::filesystem::path path) : path_(std::move(path)) {}

  enum class Result {
    kNothingNew,
    kAppended,
    kStartedAnew,  // forget all records of this file so far
    kGone,         // no regular file there
  };
  // Appends new records. More may be left when the file is far ahead: poll again.
  Result poll(std::vector<Record>& records);
  [[nodiscard]] std::int64_t num_bad_lines() const { return bad_lines_; }
  // Modification time of the file as the last poll saw it, in seconds since 1970.
  [[nodiscard]] std::int64_t changed_at() const { return changed_at_; }
  // The file's size as the last poll saw it, and how much of it has been read, in bytes.
  [[nodiscard]] std::uint64_t size() const { return size_; }
  [[nodiscard]] std::uint64_t bytes_read() const { return offset_; }

 private:
  void start_anew();
  [[nodiscard]] bool still_the_same(int fd, dev_t device, ino_t inode, std::uint64_t size) const;
  void take(std::string_view bytes, std::vector<Record>& records);
  void take_line(std::string_view line, std::vector<Record>& records);

  std::filesystem::path path_;
  bool open_before_ = false;
  dev_t device_ = 0;
  ino_t inode_ = 0;
  std::uint64_t size_ = 0;
  std::uint64_t offset_ = 0;  // of the next byte to read
  std::string head_;          // the file's first bytes and the last ones that were read: when they
  std::string tail_;          // change, the file was rewritten in place
  std::string partial_;       // the line that has no end yet
  bool skipping_ = false;     // inside a line that is too long
  std::int64_t bad_lines_ = 0;
  std::int64_t changed_at_ = 0;
};

}  // namespace pentatron::monitor
