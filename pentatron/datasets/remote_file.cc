// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/remote_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <system_error>
#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/base/loaded_library.h"

namespace pentatron::datasets {
namespace {

using OpenSource = void(const std::string& url, std::unique_ptr<RangedSource>& out);

// A descriptor of a file without a name, gone when it is closed.
class UnnamedFile final {
 public:
  UnnamedFile() {
    const std::filesystem::path folder = std::filesystem::temp_directory_path();
    fd_ = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd_ < 0) {  // a file system without unnamed files
      std::string name = (folder / "pentatron-index-XXXXXX").string();
      fd_ = ::mkostemp(name.data(), O_CLOEXEC);
      if (fd_ >= 0) ::unlink(name.c_str());
    }
    PENTATRON_CHECK(fd_ >= 0, kIo, "no file can be made in {} (TMPDIR): {}", folder.string(),
                    std::generic_category().message(errno));
  }
  ~UnnamedFile() { ::close(fd_); }
  UnnamedFile(const UnnamedFile&) = delete;
  UnnamedFile& operator=(const UnnamedFile&) = delete;

  void write(std::span<const std::byte> bytes) const {
    while (!bytes.empty()) {
      const ssize_t count = ::write(fd_, bytes.data(), bytes.size());
      if (count < 0 && errno == EINTR) continue;
      PENTATRON_CHECK(count > 0, kIo, "a copy of an index cannot be written to {} (TMPDIR): {}",
                      std::filesystem::temp_directory_path().string(),
                      std::generic_category().message(errno));
      bytes = bytes.subspan(static_cast<std::size_t>(count));
    }
  }
  [[nodiscard]] std::filesystem::path path() const { return fmt::format("/proc/self/fd/{}", fd_); }

 private:
  int fd_ = -1;
};

}  // namespace

bool is_remote(std::string_view word) {
  return word.starts_with("http://") || word.starts_with("https://");
}

std::unique_ptr<RangedSource> open_remote(const std::string& url) {
  auto* const open = reinterpret_cast<OpenSource*>(symbol_of_library(
      "libpentatron_http.so", "pentatron_open_http_source", "a corpus on a server"));
  std::unique_ptr<RangedSource> source;
  open(url, source);
  return source;
}

MappedFile download(const RangedSource& source) {
  constexpr std::uint64_t kChunk = std::uint64_t{8} << 20;
  const UnnamedFile file;
  std::vector<std::byte> buffer;
  for (std::uint64_t at = 0; at < source.size(); at += buffer.size()) {
    buffer.resize(static_cast<std::size_t>(std::min(kChunk, source.size() - at)));
    source.read(at, buffer);
    file.write(buffer);
  }
  return MappedFile(file.path());
}

}  // namespace pentatron::datasets
