// SPDX-License-Identifier: Apache-2.0
#include "pentatron/base/append_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/base/fault.h"
#include "pentatron/base/io_error.h"
#include "pentatron/base/stop_cleanup.h"

namespace pentatron {
namespace fs = std::filesystem;

AppendFile::AppendFile(int fd, fs::path path, std::uint64_t size)
    : fd_(fd), path_(std::move(path)), size_(size) {}

AppendFile AppendFile::scratch(const fs::path& folder) {
  const fs::path place = folder.empty() ? fs::path(".") : folder;
  if (!fault_refuses_unnamed_files()) {
    const int fd = ::open(place.c_str(), O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
    if (fd >= 0) return {fd, place / "(scratch file)", 0};
  }
  // A file system without O_TMPFILE: the name lives for two system calls.
  const HoldStop hold;
  std::string name = (place / ".pentatron_scratch.XXXXXX").string();
  const int fd = ::mkostemp(name.data(), O_CLOEXEC);
  if (fd < 0) throw_io_error("create a scratch file in", place, errno);
  ::unlink(name.c_str());
  return {fd, name, 0};
}

AppendFile AppendFile::continued(const fs::path& path, std::uint64_t size) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) throw_io_error("open", path, errno);
  AppendFile file(fd, path, size);
  struct stat info {};
  if (::fstat(fd, &info) != 0) throw_io_error("read the size of", path, errno);
  PENTATRON_CHECK(static_cast<std::uint64_t>(info.st_size) >= size, kData,
                  "{} has {} bytes; {} of an earlier run were expected", path.string(),
                  info.st_size, size);
  if (::ftruncate(fd, static_cast<off_t>(size)) != 0) throw_io_error("cut", path, errno);
  return file;
}

AppendFile::~AppendFile() {
  if (fd_ >= 0) ::close(fd_);
}

AppendFile::AppendFile(AppendFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)), size_(other.size_) {}

AppendFile& AppendFile::operator=(AppendFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  std::swap(size_, other.size_);
  return *this;
}

void AppendFile::write(std::span<const std::byte> bytes) {
  if (fault_before(FaultKind::kWrite, path_.native())) throw_io_error("write", path_, ENOSPC);
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(size_));
    if (count < 0) {
      if (errno == EINTR) continue;
      throw_io_error("write", path_, errno);
    }
    size_ += static_cast<std::uint64_t>(count);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  fault_after(FaultKind::kWrite, path_.native());
}

void AppendFile::sync() {
  if (fault_before(FaultKind::kSync, path_.native())) throw_io_error("sync", path_, ENOSPC);
  while (::fsync(fd_) != 0) {
    if (errno != EINTR) throw_io_error("sync", path_, errno);
  }
  fault_after(FaultKind::kSync, path_.native());
}

void AppendFile::read(std::uint64_t offset, std::span<std::byte> into) const {
  PENTATRON_CHECK(offset + into.size() <= size_, kInternal, "{}: bytes {} to {} of {}",
                  path_.string(), offset, offset + into.size(), size_);
  while (!into.empty()) {
    const ssize_t count = ::pread(fd_, into.data(), into.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw_io_error("read", path_, errno);
    PENTATRON_CHECK(count > 0, kIo, "{} was cut while it was in use", path_.string());
    offset += static_cast<std::uint64_t>(count);
    into = into.subspan(static_cast<std::size_t>(count));
  }
}

}  // namespace pentatron
