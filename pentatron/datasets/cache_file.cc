// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/cache_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <utility>

#include "pentatron/base/fault.h"
#include "pentatron/base/io_error.h"

namespace pentatron::datasets {

CacheFile::CacheFile(std::filesystem::path final_path) : final_path_(std::move(final_path)) {
  static std::atomic<std::uint64_t> serial{0};
  path_ = final_path_;
  path_ += fmt::format(".tmp.{}.{}", ::getpid(), serial.fetch_add(1));
  const HoldStop hold;
  // One that a dead process of this number left is written over.
  fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd_ < 0) throw_io_error("create", path_, errno);
  temporary_.remember(path_);
}

CacheFile::~CacheFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.remembers()) return;
  const HoldStop hold;
  ::unlink(path_.c_str());
  temporary_.forget();
}

void CacheFile::write(std::span<const std::byte> bytes) {
  constexpr std::size_t kLimit = std::size_t{1} << 30;  // in one system call
  while (!bytes.empty()) {
    if (fault_before(FaultKind::kWrite, path_.native())) throw_io_error("write", path_, ENOSPC);
    const ssize_t done = ::write(fd_, bytes.data(), std::min(bytes.size(), kLimit));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) throw_io_error("write", path_, errno);
    fault_after(FaultKind::kWrite, path_.native());
    bytes = bytes.subspan(static_cast<std::size_t>(done));
  }
}

void CacheFile::commit() {
  if (::close(std::exchange(fd_, -1)) != 0) throw_io_error("write", path_, errno);
  const HoldStop hold;
  if (fault_before(FaultKind::kRename, final_path_.native())) {
    throw_io_error("name", final_path_, ENOSPC);
  }
  if (std::rename(path_.c_str(), final_path_.c_str()) != 0) {
    throw_io_error("name", final_path_, errno);
  }
  temporary_.forget();
  fault_after(FaultKind::kRename, final_path_.native());
}

}  // namespace pentatron::datasets
