// SPDX-License-Identifier: Apache-2.0
#include "pentatron/base/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>
#include <vector>

#include "pentatron/base/descriptor.h"
#include "pentatron/base/error.h"
#include "pentatron/base/fault.h"
#include "pentatron/base/io_error.h"
#include "pentatron/base/mapping_faults.h"

namespace pentatron {
namespace fs = std::filesystem;
namespace {

int open_retrying(const fs::path& path, int flags, mode_t mode = 0) {
  for (;;) {
    const int fd = ::open(path.c_str(), flags | O_CLOEXEC, mode);
    if (fd >= 0 || errno != EINTR) return fd;
  }
}

// One fault point a call, however many system calls it takes.
void write_all(int fd, std::span<const std::byte> bytes, const fs::path& path) {
  if (fault_before(FaultKind::kWrite, path.native())) throw_io_error("write", path, ENOSPC);
  while (!bytes.empty()) {
    const ssize_t count = ::write(fd, bytes.data(), bytes.size());
    if (count < 0) {
      if (errno == EINTR) continue;
      throw_io_error("write", path, errno);
    }
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  fault_after(FaultKind::kWrite, path.native());
}

void sync_fd(int fd, const fs::path& path) {
  if (fault_before(FaultKind::kSync, path.native())) throw_io_error("sync", path, ENOSPC);
  while (::fsync(fd) != 0) {
    if (errno == EINTR) continue;
    // Some file systems cannot sync folders or special files; there is nothing more to ask of them.
    if (errno == EINVAL || errno == ENOTSUP) break;
    throw_io_error("sync", path, errno);
  }
  fault_after(FaultKind::kSync, path.native());
}

void close_checked(int& fd, const fs::path& path) {
  // After EINTR the descriptor is gone on Linux; calling again could close another thread's file.
  const int code = ::close(std::exchange(fd, -1)) == 0 ? 0 : errno;
  if (code != 0 && code != EINTR) throw_io_error("close", path, code);
}

void rename_counted(const fs::path& from, const fs::path& to) {
  if (fault_before(FaultKind::kRename, to.native())) throw_io_error("rename to", to, ENOSPC);
  if (::rename(from.c_str(), to.c_str()) != 0) {
    const int code = errno;
    PENTATRON_THROW(kIo, "cannot rename {} to {}: {}", from.string(), to.string(),
                    std::generic_category().message(code));
  }
  fault_after(FaultKind::kRename, to.native());
}

fs::path parent_of(const fs::path& path) {
  fs::path parent = path.parent_path();
  return parent.empty() ? fs::path(".") : parent;
}

std::string link_of(int fd) { return fmt::format("/proc/self/fd/{}", fd); }

// Where a chain of links ends; whether something is there does not matter.
fs::path end_of_links(fs::path path) {
  constexpr int kMaxLinks = 40;
  for (int i = 0; i < kMaxLinks; ++i) {
    std::error_code code;
    const fs::path target = fs::read_symlink(path, code);
    if (code) return path;
    path = target.is_absolute() ? target : parent_of(path) / target;
  }
  throw_io_error("follow the links of", path, ELOOP);
}

constexpr std::string_view kTemporaryInfix = ".tmp.";

// "NAME.tmp.12.3" for "NAME".
bool is_temporary_of(std::string_view name, std::string_view final_name) {
  if (!name.starts_with(final_name)) return false;
  name.remove_prefix(final_name.size());
  if (!name.starts_with(kTemporaryInfix)) return false;
  name.remove_prefix(kTemporaryInfix.size());
  const std::size_t dot = name.find('.');
  const auto digits = [](std::string_view text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
  };
  return dot != std::string_view::npos && digits(name.substr(0, dot)) &&
         digits(name.substr(dot + 1));
}

// Removes what killed processes left of earlier writes to the same name: temporaries that nobody
// holds locked. What cannot be listed, locked or removed stays; it disturbs nobody.
void remove_stale(const fs::path& final_path) {
  std::error_code code;
  const std::string final_name = final_path.filename().string();
  for (fs::directory_iterator it(parent_of(final_path), code), end; !code && it != end;
       it.increment(code)) {
    if (!is_temporary_of(it->path().filename().native(), final_name)) continue;
    const Descriptor file(open_retrying(it->path(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK));
    if (file.get() < 0 || ::flock(file.get(), LOCK_EX | LOCK_NB) != 0) continue;
    if (!fault_before(FaultKind::kUnlink, it->path().native()) &&
        ::unlink(it->path().c_str()) == 0) {
      fault_after(FaultKind::kUnlink, it->path().native());
    }
  }
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span<const char>(text.data(), text.size()));
}

}  // namespace

MappedFile::MappedFile(const fs::path& path) : path_(path) {
  // O_NONBLOCK: a pipe without a writer would be waited for before it can be refused.
  const Descriptor file(open_retrying(path, O_RDONLY | O_NONBLOCK));
  if (file.get() < 0) throw_io_error("open", path, errno);
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) throw_io_error("read the size of", path, errno);
  if (S_ISDIR(info.st_mode)) throw_io_error("read", path, EISDIR);
  PENTATRON_CHECK(S_ISREG(info.st_mode), kIo, "cannot map {}: not a regular file", path.string());
  size_ = static_cast<std::size_t>(info.st_size);
  if (size_ == 0) return;
  void* const map = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.get(), 0);
  if (map == MAP_FAILED) throw_io_error("map", path, errno);
  data_ = static_cast<const std::byte*>(map);
  remember_mapping(data_, size_, path.native());
}

MappedFile::~MappedFile() {
  if (data_ == nullptr) return;
  forget_mapping(data_);
  ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

AtomicFile::AtomicFile(fs::path final_path) : final_path_(end_of_links(std::move(final_path))) {
  if (!open_unnamed()) open_named();
}

// False where the file system, or a system without /proc, does not know files without a name; also
// for all errors that open_named() will meet and tell better.
bool AtomicFile::open_unnamed() {
  if (fault_refuses_unnamed_files()) return false;
  fd_ = open_retrying(parent_of(final_path_), O_WRONLY | O_TMPFILE, 0666);
  if (fd_ < 0) return false;
  if (::access(link_of(fd_).c_str(), F_OK) == 0) return true;
  ::close(std::exchange(fd_, -1));
  return false;
}

void AtomicFile::open_named() {
  constexpr int kAttempts = 100;
  for (int attempt = 0; attempt < kAttempts && fd_ < 0; ++attempt) {
    const HoldStop hold;
    temporary_path_ = next_temporary();
    fd_ = open_retrying(temporary_path_, O_WRONLY | O_CREAT | O_EXCL, 0666);
    if (fd_ < 0 && errno != EEXIST) throw_io_error("create", temporary_path_, errno);
    if (fd_ < 0) continue;
    // The lock tells other processes that the writer of this file is alive. If one of them took the
    // file for a dead process's before it was locked, it has removed it: create another.
    ::flock(fd_, LOCK_EX);
    struct stat info {};
    if (::fstat(fd_, &info) == 0 && info.st_nlink == 0) {
      ::close(std::exchange(fd_, -1));
      continue;
    }
    temporary_.remember(temporary_path_);
  }
  if (fd_ < 0) throw_io_error("create", temporary_path_, EEXIST);
}

// Unique among the threads of a process, the processes of a host, and (by O_EXCL) all others.
fs::path AtomicFile::next_temporary() const {
  static std::atomic<std::uint64_t> serial{0};
  fs::path path = final_path_;
  path += fmt::format("{}{}.{}", kTemporaryInfix, ::getpid(), serial.fetch_add(1));
  return path;
}

const fs::path& AtomicFile::path_now() const {
  return temporary_path_.empty() ? final_path_ : temporary_path_;
}

AtomicFile::~AtomicFile() {
  if (!committed_ && !temporary_path_.empty()) {
    // Best effort in a destructor: a leftover temporary file is never taken for the final one.
    try {
      const HoldStop hold;
      if (!fault_before(FaultKind::kUnlink, temporary_path_.native()) &&
          ::unlink(temporary_path_.c_str()) == 0) {
        fault_after(FaultKind::kUnlink, temporary_path_.native());
      }
      temporary_.forget();
    } catch (const Error&) {
      // The fault switch itself could not be read or logged.
    }
  }
  if (fd_ >= 0) ::close(fd_);
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  PENTATRON_CHECK(fd_ >= 0, kInternal, "write to {} after commit", final_path_.string());
  synced_ = false;
  write_all(fd_, bytes, path_now());
  // Large files are on their way to the disk while the rest is made: sync() waits for less. Only a
  // hint, which some file systems do not take.
  constexpr std::uint64_t kStepBytes = 8ULL << 20;
  const bool step = written_ / kStepBytes != (written_ + bytes.size()) / kStepBytes;
  written_ += bytes.size();
  if (step) (void)::sync_file_range(fd_, 0, 0, SYNC_FILE_RANGE_WRITE);
}

void AtomicFile::write(std::string_view text) { write(bytes_of(text)); }

void AtomicFile::sync() {
  PENTATRON_CHECK(fd_ >= 0, kInternal, "sync of {} after commit", final_path_.string());
  if (synced_) return;
  sync_fd(fd_, path_now());
  synced_ = true;
}

// Gives a file without a name its final one. linkat(2) replaces nothing: where something stands,
// it goes through a name of its own for the moment between two system calls.
void AtomicFile::link_or_replace() {
  const std::string source = link_of(fd_);
  const auto link_to = [&source](const fs::path& target) {
    const int flags = AT_SYMLINK_FOLLOW;
    return ::linkat(AT_FDCWD, source.c_str(), AT_FDCWD, target.c_str(), flags) == 0 ? 0 : errno;
  };
  if (fault_before(FaultKind::kRename, final_path_.native()))
    throw_io_error("name", final_path_, ENOSPC);
  int code = link_to(final_path_);
  if (code == EEXIST) {
    ::flock(fd_, LOCK_EX);
    fs::path between = next_temporary();
    while ((code = link_to(between)) == EEXIST) between = next_temporary();
    if (code == 0 && ::rename(between.c_str(), final_path_.c_str()) != 0) {
      code = errno;
      ::unlink(between.c_str());
    }
  }
  if (code != 0) throw_io_error("name", final_path_, code);
  fault_after(FaultKind::kRename, final_path_.native());
}

void AtomicFile::commit() {
  PENTATRON_CHECK(fd_ >= 0, kInternal, "second commit of {}", final_path_.string());
  sync();
  {
    const HoldStop hold;
    if (temporary_path_.empty()) {
      link_or_replace();
    } else {
      rename_counted(temporary_path_, final_path_);
      temporary_.forget();
    }
    committed_ = true;
  }
  close_checked(fd_, final_path_);
  sync_folder(parent_of(final_path_));
  remove_stale(final_path_);
}

OutputFile::OutputFile(fs::path path) : path_(std::move(path)) {
  const HoldStop hold;  // no new file in a folder that is being removed
  fd_ = open_retrying(path_, O_WRONLY | O_CREAT | O_EXCL, 0666);
  if (fd_ < 0) throw_io_error("create", path_, errno);
}

OutputFile::~OutputFile() {
  if (fd_ >= 0) ::close(fd_);
}

void OutputFile::write(std::span<const std::byte> bytes) {
  PENTATRON_CHECK(fd_ >= 0, kInternal, "write to {} after close", path_.string());
  write_all(fd_, bytes, path_);
  written_ += bytes.size();
}

void OutputFile::write(std::string_view text) { write(bytes_of(text)); }

void OutputFile::close() {
  PENTATRON_CHECK(fd_ >= 0, kInternal, "second close of {}", path_.string());
  sync_fd(fd_, path_);
  close_checked(fd_, path_);
}

std::string read_text_file(const fs::path& path, std::uint64_t max_bytes) {
  const Descriptor file(open_retrying(path, O_RDONLY));
  if (file.get() < 0) throw_io_error("open", path, errno);
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) throw_io_error("read the size of", path, errno);
  const auto expected = static_cast<std::uint64_t>(std::max<off_t>(info.st_size, 0));
  PENTATRON_CHECK(!S_ISREG(info.st_mode) || expected <= max_bytes, kIo,
                  "{} has {} bytes, at most {} are read here", path.string(), expected, max_bytes);
  // The size is only a hint (pipes, /proc, a file that grows); one byte more finds the end.
  constexpr std::uint64_t kLeast = 4096;
  std::string text;
  std::uint64_t filled = 0;
  for (;;) {
    if (filled == text.size()) {
      text.resize(std::max({kLeast, S_ISREG(info.st_mode) ? expected + 1 : 0, filled * 2}));
    }
    const ssize_t count = ::read(file.get(), text.data() + filled, text.size() - filled);
    if (count < 0) {
      if (errno == EINTR) continue;
      throw_io_error("read", path, errno);
    }
    if (count == 0) break;
    filled += static_cast<std::uint64_t>(count);
    PENTATRON_CHECK(filled <= max_bytes, kIo, "{} has more than the {} bytes that are read here",
                    path.string(), max_bytes);
  }
  text.resize(filled);
  return text;
}

void write_file_atomically(const fs::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

void sync_folder(const fs::path& folder) {
  const Descriptor descriptor(open_retrying(folder, O_RDONLY | O_DIRECTORY));
  if (descriptor.get() < 0) throw_io_error("open folder", folder, errno);
  sync_fd(descriptor.get(), folder);
}

void rename_durably(const fs::path& from, const fs::path& to) {
  const HoldStop hold;
  rename_counted(from, to);
  const fs::path source = parent_of(from);
  const fs::path target = parent_of(to);
  sync_folder(target);
  if (source != target) sync_folder(source);
}

void create_folders(const fs::path& folder) {
  std::vector<fs::path> missing;
  fs::path at = folder.has_filename() ? folder : folder.parent_path();
  std::error_code code;
  for (; !at.empty() && !fs::exists(at, code); at = at.parent_path()) missing.push_back(at);
  for (auto next = missing.rbegin(); next != missing.rend(); ++next) {
    // EEXIST: another process was faster.
    if (::mkdir(next->c_str(), 0777) != 0 && errno != EEXIST)
      throw_io_error("create folder", *next, errno);
    sync_folder(parent_of(*next));
  }
  PENTATRON_CHECK(at.empty() || fs::is_directory(folder, code), kIo,
                  "cannot create folder {}: {} is in the way", folder.string(), at.string());
}

void remove_tree(const fs::path& folder) {
  std::error_code code;
  const fs::file_status status = fs::symlink_status(folder, code);
  if (status.type() == fs::file_type::not_found) return;
  if (code) throw_io_error("remove", folder, code.value());
  if (status.type() == fs::file_type::directory) {
    std::vector<fs::path> children;
    for (fs::directory_iterator it(folder, code), end; !code && it != end; it.increment(code)) {
      children.push_back(it->path());
    }
    if (code) throw_io_error("list", folder, code.value());
    // Sorted, so that fault tests meet the same order on every file system.
    std::sort(children.begin(), children.end());
    for (const fs::path& child : children) remove_tree(child);
  }
  const HoldStop hold;
  if (fault_before(FaultKind::kUnlink, folder.native())) throw_io_error("remove", folder, ENOSPC);
  if (::remove(folder.c_str()) != 0 && errno != ENOENT) throw_io_error("remove", folder, errno);
  fault_after(FaultKind::kUnlink, folder.native());
}

}  // namespace pentatron
