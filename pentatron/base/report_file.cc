// SPDX-License-Identifier: Apache-2.0
#include "pentatron/base/report_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/base/log.h"

namespace pentatron {
namespace {

// The error of the first call that fails, 0 when all is written.
int write_whole(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(fd, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno;
    text.remove_prefix(static_cast<std::size_t>(count));
  }
  return 0;
}

}  // namespace

ReportFile::ReportFile(std::filesystem::path path, std::string option)
    : path_(std::move(path)), option_(std::move(option)) {
  fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  PENTATRON_CHECK(fd_ >= 0, kIo, "{} {} cannot be opened for writing: {}", option_, path_.string(),
                  std::generic_category().message(errno));
}

ReportFile::~ReportFile() {
  if (left_out_ > 0) {
    log::warn("{} {} lacks the last {} records", option_, path_.string(), left_out_);
  }
  ::close(fd_);
}

bool ReportFile::append(std::string_view record) {
  struct stat before {};
  const bool known = ::fstat(fd_, &before) == 0;
  const int code = write_whole(fd_, record);
  if (code == 0) {
    if (left_out_ > 0) {
      log::warn("{} {} is written again; {} records are missing in it", option_, path_.string(),
                std::exchange(left_out_, 0));
    }
    return true;
  }
  // Cut the partial record off. If even that fails, readers skip the damaged line.
  if (known && ::ftruncate(fd_, before.st_size) != 0 && left_out_ == 0) {
    log::warn("{} {}: half of a record stays in it", option_, path_.string());
  }
  if (left_out_++ == 0) {
    log::warn("{} {}: cannot write: {}. The run goes on without its reports until there is room.",
              option_, path_.string(), std::generic_category().message(code));
  }
  return false;
}

}  // namespace pentatron
