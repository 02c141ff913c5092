// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

// A file that grows at its end and can be read back while it does. Errors are ErrorKind::kIo.
namespace pentatron {

class AppendFile final {
 public:
  // Scratch space in `folder`: without a name, gone with the object or the process.
  [[nodiscard]] static AppendFile scratch(const std::filesystem::path& folder);
  // A named file, cut to its first `size` bytes, so that a later process goes on where an earlier
  // one was known to be; it stays when the object goes. A file shorter than `size`: kData.
  [[nodiscard]] static AppendFile continued(const std::filesystem::path& path, std::uint64_t size);

  ~AppendFile();
  AppendFile(AppendFile&& other) noexcept;
  AppendFile& operator=(AppendFile&& other) noexcept;
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void sync();
  [[nodiscard]] std::uint64_t size() const { return size_; }
  // `offset + into.size()` must be at most size(): kInternal.
  void read(std::uint64_t offset, std::span<std::byte> into) const;

 private:
  AppendFile(int fd, std::filesystem::path path, std::uint64_t size);

  int fd_ = -1;
  std::filesystem::path path_;  // for messages
  std::uint64_t size_ = 0;
};

}  // namespace pentatron
