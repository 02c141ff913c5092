// SPDX-License-Identifier: Apache-2.0
#include "pentatron/checkpoint/save_folder.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <system_error>
#include <thread>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/checkpoint/together.h"

namespace pentatron::checkpoint {
namespace fs = std::filesystem;
namespace {

constexpr double kBytesPerGb = 1e9;
// A folder that one machine has made shows on others of a network file system after up to a minute.
constexpr std::chrono::seconds kLongestDelay{60};
constexpr std::chrono::milliseconds kPoll{100};

void check_writable(const fs::path& root) {
  // NOLINTNEXTLINE: the one system call that also knows read-only file systems
  const bool writable = ::access(root.c_str(), W_OK | X_OK) == 0;
  PENTATRON_CHECK(writable, kIo,
                  "--save {}: cannot write there: {}. Give a folder of your own, or change its "
                  "permissions.",
                  root.string(), std::generic_category().message(errno));
}

void check_seen(const fs::path& root) {
  const auto end = std::chrono::steady_clock::now() + kLongestDelay;
  std::error_code code;
  while (!fs::is_directory(root, code)) {
    PENTATRON_CHECK(std::chrono::steady_clock::now() < end, kConfig,
                    "--save {}: the folder that rank 0 sees is not there. Give one on a file "
                    "system that all ranks share.",
                    root.string());
    std::this_thread::sleep_for(kPoll);
  }
  check_writable(root);
}

}  // namespace

void prepare_save_folder(const fs::path& root) {
  std::error_code code;
  const bool is_link = fs::symlink_status(root, code).type() == fs::file_type::symlink;
  const fs::file_status status = fs::status(root, code);
  PENTATRON_CHECK(status.type() != fs::file_type::none, kIo, "--save {}: cannot look there: {}",
                  root.string(), code.message());
  PENTATRON_CHECK(!is_link || fs::exists(status), kConfig,
                  "--save {}: this is a link to {}, which is not there. Make that folder, or give "
                  "another --save.",
                  root.string(), fs::read_symlink(root, code).string());
  PENTATRON_CHECK(!fs::exists(status) || fs::is_directory(status), kConfig,
                  "--save {}: this is a file, expected a folder. Give another --save.",
                  root.string());
  create_folders(root);
  check_writable(root);
}

void check_room(const fs::path& root, std::uint64_t bytes) {
  struct statvfs system {};
  // A file system that does not tell is asked by the first save.
  if (::statvfs(root.c_str(), &system) != 0 || system.f_blocks == 0) return;
  const std::uint64_t free = std::uint64_t{system.f_bavail} * system.f_frsize;
  PENTATRON_CHECK(free >= bytes, kIo,
                  "--save {}: a checkpoint of this run takes {:.3f} GB, its file system has room "
                  "for {:.3f} GB. Free some, give another --save, or save less (--no-save-optim).",
                  root.string(), static_cast<double>(bytes) / kBytesPerGb,
                  static_cast<double>(free) / kBytesPerGb);
}

std::unique_ptr<FolderLock> open_save_folder(const fs::path& root, comm::Group& world) {
  std::unique_ptr<FolderLock> lock;
  (void)run_together(world, "", [&] {
    if (world.rank() == 0) {
      prepare_save_folder(root);
      lock = std::make_unique<FolderLock>(root);
    }
    return std::string();
  });
  if (world.size() == 1) return lock;
  (void)run_together(world, "a rank cannot save", [&] {
    if (world.rank() != 0) check_seen(root);
    return std::string();
  });
  return lock;
}

}  // namespace pentatron::checkpoint
