// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/file_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "pentatron/base/error.h"

namespace pentatron::datasets {

FileSource::FileSource(const std::string& path)
    : name_(path == "-" ? "standard input" : path), fd_(path == "-" ? STDIN_FILENO : -1) {
  if (path != "-") fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  PENTATRON_CHECK(fd_ >= 0, kIo, "cannot open {}: {}", name_,
                  std::generic_category().message(errno));
  struct stat info {};
  if (::fstat(fd_, &info) != 0) return;
  seekable_ = S_ISREG(info.st_mode);
  if (!S_ISDIR(info.st_mode)) return;
  if (fd_ != STDIN_FILENO) ::close(fd_);
  PENTATRON_THROW(kIo, "cannot read {}: it is a folder", name_);
}

FileSource::~FileSource() {
  if (fd_ != STDIN_FILENO) ::close(fd_);
}

std::size_t FileSource::read_file(std::span<char> into) {
  ssize_t count = 0;
  do {
    count = ::read(fd_, into.data(), into.size());
  } while (count < 0 && errno == EINTR);
  PENTATRON_CHECK(count >= 0, kIo, "cannot read {}: {}", name_,
                  std::generic_category().message(errno));
  return static_cast<std::size_t>(count);
}

std::string_view FileSource::peek(std::size_t count) {
  // A pipe may give a few bytes at a time.
  while (peeked_.size() < count) {
    const std::size_t have = peeked_.size();
    peeked_.resize(count);
    const std::size_t got = read_file(std::span(peeked_).subspan(have));
    peeked_.resize(have + got);
    if (got == 0) break;
  }
  return {peeked_.data(), std::min(count, peeked_.size())};
}

std::size_t FileSource::read(std::span<char> into) {
  const std::size_t left = peeked_.size() - peeked_used_;
  std::size_t count = std::min(left, into.size());
  if (count > 0) {
    std::memcpy(into.data(), peeked_.data() + peeked_used_, count);
    peeked_used_ += count;
  } else {
    count = read_file(into);
  }
  used_ += count;
  return count;
}

void FileSource::skip(std::uint64_t count) {
  struct stat info {};
  if (!seekable_ || ::fstat(fd_, &info) != 0) return ByteSource::skip(count);
  PENTATRON_CHECK(used_ + count <= static_cast<std::uint64_t>(info.st_size), kData,
                  "{} has {} bytes, fewer than the {} that were read before", name_, info.st_size,
                  used_ + count);
  used_ += count;
  peeked_used_ = peeked_.size();
  PENTATRON_CHECK(::lseek(fd_, static_cast<off_t>(used_), SEEK_SET) >= 0, kIo,
                  "cannot seek in {}: {}", name_, std::generic_category().message(errno));
}

}  // namespace pentatron::datasets
