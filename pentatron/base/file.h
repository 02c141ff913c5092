// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "pentatron/base/stop_cleanup.h"

// Files: read-only maps, and writes that are either the old content or the new. Errors are
// ErrorKind::kIo and name the path and the system's reason; a call after commit() or close() is
// kInternal.
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

// A file that is nowhere to be seen before commit(), which syncs it, gives it its final name (in
// place of an older one) and syncs the folder. It is written without any name where the file system
// can do that (O_TMPFILE), so that not even SIGKILL leaves something behind; else as
// NAME.tmp.<pid>.<n> beside the final one, removed by the destructor, by StopCleanup, or by the
// next commit() to the same name. Every write, sync, rename and unlink passes the fault points of
// base/fault.h, so that tests can stop there. A link stays a link: its target is replaced.
class AtomicFile final {
 public:
  explicit AtomicFile(std::filesystem::path final_path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  [[nodiscard]] std::uint64_t bytes_written() const { return written_; }
  // The slow part of commit(), beforehand: for files that become visible together, under one
  // HoldStop.
  void sync();
  void commit();

 private:
  [[nodiscard]] bool open_unnamed();
  void open_named();
  [[nodiscard]] std::filesystem::path next_temporary() const;
  [[nodiscard]] const std::filesystem::path& path_now() const;
  void link_or_replace();

  std::filesystem::path final_path_;
  std::filesystem::path temporary_path_;  // empty: no name
  TemporaryName temporary_;
  int fd_ = -1;
  std::uint64_t written_ = 0;
  bool synced_ = false;
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

// A larger file than `max_bytes` is an error; pipes and /proc are read to their end.
[[nodiscard]] std::string read_text_file(const std::filesystem::path& path,
                                         std::uint64_t max_bytes = 1ULL << 32);
void write_file_atomically(const std::filesystem::path& path, std::string_view text);
void sync_folder(const std::filesystem::path& folder);
// rename(2) plus sync of the parent folder.
void rename_durably(const std::filesystem::path& from, const std::filesystem::path& to);
// With all parents that are missing, each synced into its own; one that is there is no error.
void create_folders(const std::filesystem::path& folder);
// Removes a tree; a missing one is no error.
void remove_tree(const std::filesystem::path& folder);

}  // namespace pentatron
