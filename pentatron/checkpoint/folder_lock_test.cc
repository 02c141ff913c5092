// SPDX-License-Identifier: Apache-2.0
#include "pentatron/checkpoint/folder_lock.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <fstream>
#include <thread>
#include <utility>

#include "pentatron/base/file.h"
#include "pentatron/base/temp_folder.h"
#include "pentatron/base/test_support.h"
#include "pentatron/checkpoint/test_support.h"

namespace pentatron::checkpoint {
namespace {
namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

const FolderLock::Timing kQuick{
    .heartbeat = milliseconds(10), .silence = milliseconds(300), .grace = milliseconds(50)};

LockHolder held_by_another_machine() {
  return {.host = "node-17",
          .pid = 4321,
          .boot_id = "00000000-0000-0000-0000-000000000000",
          .started = "2026-01-02 03:04:05 UTC",
          .token = "node-17/4321",
          .beats = 5};
}

fs::path lock_file(const TempFolder& folder) { return folder.path() / kLockName; }

void put_record(const fs::path& file, const LockHolder& holder) {
  std::ofstream(file, std::ios::trunc) << lock_text(holder);
}

LockHolder record_of(const fs::path& file) {
  const std::optional<LockHolder> holder = parse_lock(read_text_file(file));
  EXPECT_TRUE(holder) << file;
  return holder.value_or(LockHolder{});
}

// A process that holds the lock until it is killed.
class OtherProcess final {
 public:
  explicit OtherProcess(const fs::path& folder) {
    std::array<int, 2> ready{};
    EXPECT_EQ(::pipe(ready.data()), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      const FolderLock lock(folder, kQuick);
      (void)!::write(ready[1], "x", 1);
      for (;;) ::pause();
    }
    ::close(ready[1]);
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    ::close(ready[0]);
  }
  ~OtherProcess() { kill(); }
  OtherProcess(const OtherProcess&) = delete;
  OtherProcess& operator=(const OtherProcess&) = delete;
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    EXPECT_EQ(::waitpid(std::exchange(pid_, -1), nullptr, 0) > 0, true);
  }
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
};

TEST(FolderLock, A3_ASecondProcessIsRefusedAndTheDeadOneReplaced) {
  const TempFolder folder;
  OtherProcess other(folder.path());
  const std::string who = fmt::format("process {} on ", other.pid());
  expect_error(ErrorKind::kConfig, who, [&] { const FolderLock lock(folder.path(), kQuick); });
  EXPECT_EQ(record_of(lock_file(folder)).pid, other.pid());
  other.kill();
  const Clock::time_point start = Clock::now();
  {
    // A machine's own dead are known by the kernel: nothing is waited for.
    FolderLock lock(folder.path(), {.silence = std::chrono::minutes(5)});
    EXPECT_LT(Clock::now() - start, std::chrono::seconds(60));
    EXPECT_EQ(record_of(lock_file(folder)).pid, ::getpid());
    lock.check_held();
  }
  EXPECT_FALSE(fs::exists(lock_file(folder)));
}

TEST(FolderLock, A3_TwoInOneProcessExcludeEachOther) {
  const TempFolder folder;
  auto first = std::make_unique<FolderLock>(folder.path(), kQuick);
  expect_error(ErrorKind::kConfig, "another run writes its checkpoints there",
               [&] { const FolderLock lock(folder.path(), kQuick); });
  // One that ends within the grace gives way.
  std::thread ends([&] {
    std::this_thread::sleep_for(milliseconds(100));
    first.reset();
  });
  {
    FolderLock second(folder.path(), {.grace = std::chrono::seconds(60)});
    second.check_held();
  }
  ends.join();
}

TEST(FolderLock, A3_AnotherMachinesDeadRunIsTakenOver) {
  const TempFolder folder;
  put_record(lock_file(folder), held_by_another_machine());
  const Clock::time_point start = Clock::now();
  FolderLock lock(folder.path(), kQuick);
  EXPECT_GE(Clock::now() - start, kQuick.silence);
  EXPECT_EQ(record_of(lock_file(folder)).pid, ::getpid());
  lock.check_held();
}

TEST(FolderLock, A3_AnotherMachinesLiveRunIsNot) {
  const TempFolder folder;
  const fs::path file = lock_file(folder);
  LockHolder holder = held_by_another_machine();
  put_record(file, holder);
  std::atomic<bool> stop{false};
  std::thread machine([&] {
    while (!stop) {
      std::this_thread::sleep_for(milliseconds(10));
      ++holder.beats;
      const std::string text = lock_text(holder);
      std::fstream(file, std::ios::in | std::ios::out) << text;
    }
  });
  expect_error(ErrorKind::kConfig, "process 4321 on node-17, started 2026-01-02 03:04:05 UTC", [&] {
    const FolderLock lock(folder.path(), {.silence = std::chrono::seconds(60)});
  });
  stop = true;
  machine.join();
  EXPECT_EQ(record_of(file).host, "node-17");
}

TEST(FolderLock, A3_BeatsWhileItLives) {
  const TempFolder folder;
  const FolderLock lock(folder.path(), kQuick);
  const std::uint64_t before = record_of(lock_file(folder)).beats;
  const Clock::time_point end = Clock::now() + std::chrono::seconds(60);
  while (record_of(lock_file(folder)).beats < before + 3 && Clock::now() < end) {
    std::this_thread::sleep_for(milliseconds(5));
  }
  EXPECT_GE(record_of(lock_file(folder)).beats, before + 3);
}

TEST(FolderLock, A3_ALostLockIsNoticedBeforeAWrite) {
  const TempFolder folder;
  const fs::path file = lock_file(folder);
  {
    FolderLock lock(folder.path());  // its count rests meanwhile
    // Removed by a person: taken anew.
    fs::remove(file);
    lock.check_held();
    EXPECT_EQ(record_of(file).pid, ::getpid());
    // Taken over by a machine whose locks are not seen here.
    put_record(file, held_by_another_machine());
    expect_error(ErrorKind::kCheckpoint, "process 4321 on node-17", [&] { lock.check_held(); });
  }
  // Theirs stays.
  EXPECT_EQ(record_of(file).host, "node-17");
}

TEST(FolderLock, A3_ATornRecordIsNobodys) {
  for (const char* text : {"", "{", "null", R"({"host":"x"})", R"({"host":1,"pid":"y"})"}) {
    EXPECT_FALSE(parse_lock(text)) << text;
    const TempFolder folder;
    std::ofstream(lock_file(folder)) << text;
    FolderLock lock(folder.path(), kQuick);
    lock.check_held();
  }
  const LockHolder holder = held_by_another_machine();
  EXPECT_EQ(lock_text(*parse_lock(lock_text(holder))), lock_text(holder));
}

TEST(FolderLock, A3_ASaveTouchesNothingOfAnotherRun) {
  const TempFolder folder;
  const fs::path saving = folder.path() / ".saving_iter_0000010" / "rank_00000.safetensors";
  OtherProcess other(folder.path());
  fs::create_directories(saving.parent_path());
  std::ofstream(saving) << "half";
  expect_error(ErrorKind::kConfig, "another run writes its checkpoints there",
               [&] { (void)testing_support::save_single(folder.path(), 10, 1); });
  EXPECT_EQ(read_text_file(saving), "half");
  other.kill();
  (void)testing_support::save_single(folder.path(), 10, 1);
  EXPECT_FALSE(fs::exists(saving));
  EXPECT_FALSE(fs::exists(lock_file(folder)));
}

}  // namespace
}  // namespace pentatron::checkpoint
