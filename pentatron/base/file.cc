// SPDX-License-Identifier: Apache-2.0
#include "pentatron/base/file.h"

#include <fcntl.h>
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

#include "pentatron/base/error.h"
#include "pentatron/base/fault.h"

namespace pentatron {
namespace fs = std::filesystem;
namespace {

[[noreturn]] void fail(std::string_view what, const fs::path& path, int code) {
  PENTATRON_THROW(kIo, "cannot {} {}: {}", what, path.string(),
                  std::generic_category().message(code));
}

// A descriptor closed at the end of the scope; for reads and folders, where close cannot lose data.
class Descriptor final {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_;
};

int open_retrying(const fs::path& path, int flags, mode_t mode = 0) {
  for (;;) {
    const int fd = ::open(path.c_str(), flags | O_CLOEXEC, mode);
    if (fd >= 0 || errno != EINTR) return fd;
  }
}

// One fault point a call, however many system calls it takes.
void write_all(int fd, std::span<const std::byte> bytes, const fs::path& path) {
  if (fault_before(FaultKind::kWrite, path.native())) fail("write", path, ENOSPC);
  while (!bytes.empty()) {
    const ssize_t count = ::write(fd, bytes.data(), bytes.size());
    if (count < 0) {
      if (errno == EINTR) continue;
      fail("write", path, errno);
    }
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  fault_after(FaultKind::kWrite, path.native());
}

void sync_fd(int fd, const fs::path& path) {
  if (fault_before(FaultKind::kSync, path.native())) fail("sync", path, ENOSPC);
  while (::fsync(fd) != 0) {
    if (errno == EINTR) continue;
    // Some file systems cannot sync folders or special files; there is nothing more to ask of them.
    if (errno == EINVAL || errno == ENOTSUP) break;
    fail("sync", path, errno);
  }
  fault_after(FaultKind::kSync, path.native());
}

void close_checked(int& fd, const fs::path& path) {
  // After EINTR the descriptor is gone on Linux; calling again could close another thread's file.
  const int code = ::close(std::exchange(fd, -1)) == 0 ? 0 : errno;
  if (code != 0 && code != EINTR) fail("close", path, code);
}

void rename_counted(const fs::path& from, const fs::path& to) {
  if (fault_before(FaultKind::kRename, to.native())) fail("rename to", to, ENOSPC);
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

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span<const char>(text.data(), text.size()));
}

}  // namespace

MappedFile::MappedFile(const fs::path& path) : path_(path) {
  const Descriptor file(open_retrying(path, O_RDONLY));
  if (file.get() < 0) fail("open", path, errno);
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) fail("read the size of", path, errno);
  if (S_ISDIR(info.st_mode)) fail("read", path, EISDIR);
  PENTATRON_CHECK(S_ISREG(info.st_mode), kIo, "cannot map {}: not a regular file", path.string());
  size_ = static_cast<std::size_t>(info.st_size);
  if (size_ == 0) return;
  void* const map = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.get(), 0);
  if (map == MAP_FAILED) fail("map", path, errno);
  data_ = static_cast<const std::byte*>(map);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
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

AtomicFile::AtomicFile(fs::path final_path) : final_path_(std::move(final_path)) {
  // Unique among the threads of a process, the processes of a host, and (by O_EXCL) all others.
  static std::atomic<std::uint64_t> serial{0};
  constexpr int kAttempts = 100;
  for (int attempt = 0; attempt < kAttempts && fd_ < 0; ++attempt) {
    temporary_path_ = final_path_;
    temporary_path_ += fmt::format(".tmp.{}.{}", ::getpid(), serial.fetch_add(1));
    fd_ = open_retrying(temporary_path_, O_WRONLY | O_CREAT | O_EXCL, 0666);
    if (fd_ < 0 && errno != EEXIST) fail("create", temporary_path_, errno);
  }
  if (fd_ < 0) fail("create", temporary_path_, EEXIST);
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) ::close(fd_);
  if (committed_) return;
  // Best effort in a destructor: a leftover temporary file is never taken for the final one.
  try {
    if (!fault_before(FaultKind::kUnlink, temporary_path_.native()) &&
        ::unlink(temporary_path_.c_str()) == 0) {
      fault_after(FaultKind::kUnlink, temporary_path_.native());
    }
  } catch (const Error&) {
    return;  // the fault switch itself could not be read or logged
  }
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  PENTATRON_CHECK(fd_ >= 0, kInternal, "write to {} after commit", final_path_.string());
  write_all(fd_, bytes, temporary_path_);
  written_ += bytes.size();
}

void AtomicFile::write(std::string_view text) { write(bytes_of(text)); }

void AtomicFile::commit() {
  PENTATRON_CHECK(fd_ >= 0, kInternal, "second commit of {}", final_path_.string());
  sync_fd(fd_, temporary_path_);
  close_checked(fd_, temporary_path_);
  rename_counted(temporary_path_, final_path_);
  committed_ = true;
  sync_folder(parent_of(final_path_));
}

OutputFile::OutputFile(fs::path path) : path_(std::move(path)) {
  fd_ = open_retrying(path_, O_WRONLY | O_CREAT | O_EXCL, 0666);
  if (fd_ < 0) fail("create", path_, errno);
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
  if (file.get() < 0) fail("open", path, errno);
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) fail("read the size of", path, errno);
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
      fail("read", path, errno);
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
  if (descriptor.get() < 0) fail("open folder", folder, errno);
  sync_fd(descriptor.get(), folder);
}

void rename_durably(const fs::path& from, const fs::path& to) {
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
    if (::mkdir(next->c_str(), 0777) != 0 && errno != EEXIST) fail("create folder", *next, errno);
    sync_folder(parent_of(*next));
  }
  PENTATRON_CHECK(at.empty() || fs::is_directory(folder, code), kIo,
                  "cannot create folder {}: {} is in the way", folder.string(), at.string());
}

void remove_tree(const fs::path& folder) {
  std::error_code code;
  const fs::file_status status = fs::symlink_status(folder, code);
  if (status.type() == fs::file_type::not_found) return;
  if (code) fail("remove", folder, code.value());
  if (status.type() == fs::file_type::directory) {
    std::vector<fs::path> children;
    for (fs::directory_iterator it(folder, code), end; !code && it != end; it.increment(code)) {
      children.push_back(it->path());
    }
    if (code) fail("list", folder, code.value());
    // Sorted, so that fault tests meet the same order on every file system.
    std::sort(children.begin(), children.end());
    for (const fs::path& child : children) remove_tree(child);
  }
  if (fault_before(FaultKind::kUnlink, folder.native())) fail("remove", folder, ENOSPC);
  if (::remove(folder.c_str()) != 0 && errno != ENOENT) fail("remove", folder, errno);
  fault_after(FaultKind::kUnlink, folder.native());
}

}  // namespace pentatron
