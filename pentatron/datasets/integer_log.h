// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "pentatron/base/append_file.h"

namespace pentatron::datasets {

// A growing list of int32 of which only the newest part stands in memory; the rest goes to a file
// that is read back once, from front to back. Errors are those of AppendFile.
class IntegerLog final {
 public:
  static constexpr std::size_t kInMemory = 1 << 18;

  // Scratch space in `folder`, which is used only by lists longer than kInMemory.
  explicit IntegerLog(std::filesystem::path folder) : folder_(std::move(folder)) {}
  // In a named file that holds the first `size` values already.
  IntegerLog(const std::filesystem::path& file, std::int64_t size)
      : size_(size), file_(AppendFile::continued(file, static_cast<std::uint64_t>(size) * 4)) {}

  void push_back(std::int32_t value) {
    newest_.push_back(value);
    ++size_;
    if (newest_.size() == kInMemory) flush();
  }
  [[nodiscard]] std::int64_t size() const { return size_; }

  // Brings all to the file and syncs it.
  void sync() {
    flush();
    file_->sync();
  }

  // Calls `take(std::span<const std::int32_t>)` for all values in order, some at a time.
  template <typename Take>
  void for_each(Take take) const {
    std::vector<std::int32_t> block(kInMemory);
    const std::uint64_t stored = file_ ? file_->size() : 0;
    for (std::uint64_t at = 0; at < stored;) {
      const std::uint64_t bytes = std::min<std::uint64_t>(block.size() * 4, stored - at);
      const std::span<std::int32_t> values(block.data(), bytes / 4);
      file_->read(at, std::as_writable_bytes(values));
      take(std::span<const std::int32_t>(values));
      at += bytes;
    }
    take(std::span<const std::int32_t>(newest_));
  }

 private:
  void flush() {
    if (!file_) file_ = AppendFile::scratch(folder_);
    file_->write(std::as_bytes(std::span<const std::int32_t>(newest_)));
    newest_.clear();
  }

  std::filesystem::path folder_;
  std::int64_t size_ = 0;
  std::vector<std::int32_t> newest_;
  std::optional<AppendFile> file_;
};

}  // namespace pentatron::datasets
