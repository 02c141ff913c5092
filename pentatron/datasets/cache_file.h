// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

#include "pentatron/base/stop_cleanup.h"

namespace pentatron::datasets {

// A file of a cache: written under a name of its own beside the final one, which commit() gives it,
// so that no reader and no process that dies leaves a half. Unlike AtomicFile it is not synced: a
// blend of thousands of corpora has ten thousand of them, and what a loss of power leaves of one is
// found by its checksum. Errors: ErrorKind::kIo, naming path and reason.
class CacheFile final {
 public:
  explicit CacheFile(std::filesystem::path final_path);
  ~CacheFile();
  CacheFile(const CacheFile&) = delete;
  CacheFile& operator=(const CacheFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  void commit();
  // Where it stands until commit().
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path final_path_;
  std::filesystem::path path_;  // until commit()
  TemporaryName temporary_;
  int fd_ = -1;
};

}  // namespace pentatron::datasets
