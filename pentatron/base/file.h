// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

// Files: read-only maps, and writes that are either the old content or the new. Errors are
// ErrorKind::kIo and name the path and the system's reason.
namespace pentatron {

// Read-only memory map of a whole file; empty files map to an empty span.
class MappedFile final {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  [[nodiscard]] std::span<const std::byte> bytes() const { return {data_, size_}; }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// A file written under a temporary name beside its final one. Nothing is visible under the final
// name before commit(), which syncs the file, renames it and syncs the folder. Destroyed without
// commit: the temporary file is removed. Every write, sync, rename and unlink passes fault_point()
// (see base/fault.h), so that tests can stop there.
class AtomicFile final {
 public:
  explicit AtomicFile(std::filesystem::path final_path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  [[nodiscard]] std::uint64_t bytes_written() const { return written_; }
  void commit();

 private:
  std::filesystem::path final_path_;
  std::filesystem::path temporary_path_;
  int fd_ = -1;
  std::uint64_t written_ = 0;
  bool committed_ = false;
};

// A plain file written in place inside a folder that is itself temporary (a checkpoint being
// saved): create exclusively, write, sync, close. Same fault points.
class OutputFile final {
 public:
  explicit OutputFile(std::filesystem::path path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  [[nodiscard]] std::uint64_t bytes_written() const { return written_; }
  // Syncs and closes; a file destroyed without close() leaves its content unsynced.
  void close();

 private:
  std::filesystem::path path_;
  int fd_ = -1;
  std::uint64_t written_ = 0;
};

[[nodiscard]] std::string read_text_file(const std::filesystem::path& path,
                                         std::uint64_t max_bytes = 1ULL << 32);
void write_file_atomically(const std::filesystem::path& path, std::string_view text);
void sync_folder(const std::filesystem::path& folder);
// rename(2) plus sync of the parent folder.
void rename_durably(const std::filesystem::path& from, const std::filesystem::path& to);
void create_folders(const std::filesystem::path& folder);
// Removes a tree; a missing one is no error.
void remove_tree(const std::filesystem::path& folder);

}  // namespace pentatron
