// SPDX-License-Identifier: Apache-2.0
#include "pentatron/base/file.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <string>
#include <vector>

#include "pentatron/base/fault.h"
#include "pentatron/base/temp_folder.h"
#include "pentatron/base/test_support.h"

namespace pentatron {
namespace {

namespace fs = std::filesystem;
using Environment = std::map<std::string, std::string>;

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::size_t count_children(const fs::path& folder) {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& child : fs::directory_iterator(folder)) ++count;
  return count;
}

// Runs one test of this program in a fresh process with more environment; its wait status.
int run_child(const std::string& test, const Environment& environment) {
  const std::string program = fs::read_symlink("/proc/self/exe").string();
  const std::string filter = "--gtest_filter=" + test;
  const pid_t child = ::fork();
  if (child == 0) {
    for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
    // The parent's report must not be overwritten, and its log stays short.
    ::unsetenv("GTEST_OUTPUT");
    if (::freopen("/dev/null", "w", stdout) == nullptr) ::_exit(126);
    ::execl(program.c_str(), program.c_str(), filter.c_str(), "--gtest_also_run_disabled_tests",
            static_cast<char*>(nullptr));
    ::_exit(127);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return status;
}

constexpr const char* kFolderVariable = "PENTATRON_TEST_FOLDER";

// The work of the child processes below; not a test of its own.
TEST(BaseFileChild, DISABLED_ReplaceAFile) {
  const char* folder = ::getenv(kFolderVariable);
  ASSERT_NE(folder, nullptr);
  AtomicFile file(fs::path(folder) / "value");
  file.write("new ");
  file.write("content");
  file.commit();
}

TEST(BaseFileChild, DISABLED_PublishAFolder) {
  const char* folder = ::getenv(kFolderVariable);
  ASSERT_NE(folder, nullptr);
  const fs::path root(folder);
  create_folders(root / "saving" / "part");
  OutputFile file(root / "saving" / "part" / "data");
  file.write("all ");
  file.write("of it");
  file.close();
  rename_durably(root / "saving", root / "saved");
  remove_tree(root / "old");
}

TEST(BaseFileChild, DISABLED_WriteBeyondTheLimit) {
  const char* folder = ::getenv(kFolderVariable);
  ASSERT_NE(folder, nullptr);
  constexpr rlim_t kLimit = 100'000;
  const rlimit limit = {kLimit, kLimit};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  ::signal(SIGXFSZ, SIG_IGN);
  const std::string text(2 * kLimit, 'x');
  expect_error(ErrorKind::kIo, "File too large",
               [&] { write_file_atomically(fs::path(folder) / "value", text); });
}

TEST(BaseFile, MapsContentAndEmptyFiles) {
  const TempFolder folder;
  write_file_atomically(folder.path() / "a", "hello");
  write_file_atomically(folder.path() / "empty", "");
  MappedFile map(folder.path() / "a");
  EXPECT_EQ(text_of(map.bytes()), "hello");
  MappedFile moved(std::move(map));
  EXPECT_EQ(text_of(moved.bytes()), "hello");
  MappedFile other(folder.path() / "empty");
  EXPECT_TRUE(other.bytes().empty());
  other = std::move(moved);
  EXPECT_EQ(text_of(other.bytes()), "hello");
  EXPECT_EQ(other.path(), folder.path() / "a");
}

TEST(BaseFile, ErrorsNamePathAndReason) {
  const TempFolder folder;
  const fs::path missing = folder.path() / "missing";
  expect_error(ErrorKind::kIo, missing.string() + ": No such file",
               [&] { MappedFile map(missing); });
  expect_error(ErrorKind::kIo, "Is a directory", [&] { MappedFile map(folder.path()); });
  expect_error(ErrorKind::kIo, "No such file", [&] { (void)read_text_file(missing); });
  expect_error(ErrorKind::kIo, "No such file", [&] { AtomicFile file(missing / "a"); });
  expect_error(ErrorKind::kIo, "No such file",
               [&] { rename_durably(missing, folder.path() / "b"); });
  expect_error(ErrorKind::kIo, "No such file", [&] { sync_folder(missing); });
  write_file_atomically(missing, "x");
  expect_error(ErrorKind::kIo, "File exists", [&] { OutputFile file(missing); });
  expect_error(ErrorKind::kIo, missing.string(), [&] { create_folders(missing); });
  expect_error(ErrorKind::kIo, missing.string(), [&] { create_folders(missing / "below"); });
}

TEST(BaseFile, ReadsTextUpToALimit) {
  const TempFolder folder;
  const fs::path path = folder.path() / "text";
  const std::string text(10'000, 'x');
  write_file_atomically(path, text);
  EXPECT_EQ(read_text_file(path), text);
  EXPECT_EQ(read_text_file(path, 10'000), text);
  expect_error(ErrorKind::kIo, "at most 9999", [&] { (void)read_text_file(path, 9'999); });
  // A file whose size says nothing.
  EXPECT_FALSE(read_text_file("/proc/self/status").empty());
  expect_error(ErrorKind::kIo, "more than the 10 bytes",
               [] { (void)read_text_file("/proc/self/status", 10); });
}

TEST(BaseFile, NothingVisibleBeforeCommitAndNothingLeftWithout) {
  const TempFolder folder;
  const fs::path path = folder.path() / "value";
  {
    AtomicFile file(path);
    file.write("abc");
    file.write(std::string_view("de"));
    EXPECT_EQ(file.bytes_written(), 5U);
    EXPECT_FALSE(fs::exists(path));
  }
  EXPECT_EQ(count_children(folder.path()), 0U);
  AtomicFile first(path);
  AtomicFile second(path);
  first.write("first");
  second.write("second");
  first.commit();
  EXPECT_EQ(read_text_file(path), "first");
  second.commit();
  EXPECT_EQ(read_text_file(path), "second");
  EXPECT_EQ(count_children(folder.path()), 1U);
  expect_error(ErrorKind::kInternal, "second commit", [&] { second.commit(); });
  expect_error(ErrorKind::kInternal, "after commit", [&] { second.write("more"); });
}

TEST(BaseFile, F16_LinksAreWrittenThrough) {
  const TempFolder folder;
  const fs::path target = folder.path() / "deep" / "value";
  const fs::path link = folder.path() / "link";
  create_folders(target.parent_path());
  // Relative, over a second link, and at first to nothing.
  fs::create_symlink("deep/second", link);
  fs::create_symlink("value", folder.path() / "deep" / "second");
  for (const char* text : {"new", "replaced"}) {
    write_file_atomically(link, text);
    EXPECT_EQ(read_text_file(target), text);
    EXPECT_TRUE(fs::is_symlink(link));
    EXPECT_FALSE(fs::is_symlink(target));
  }
  fs::create_symlink("round", folder.path() / "round");
  expect_error(ErrorKind::kIo, "follow the links",
               [&] { write_file_atomically(folder.path() / "round", "x"); });
}

TEST(BaseFile, A14_APipeIsNotWaitedFor) {
  const TempFolder folder;
  ASSERT_EQ(::mkfifo((folder.path() / "pipe").c_str(), 0600), 0);
  expect_error(ErrorKind::kIo, "not a regular file",
               [&] { const MappedFile map(folder.path() / "pipe"); });
}

TEST(BaseFile, FoldersAreMadeRenamedAndRemoved) {
  const TempFolder folder;
  create_folders(folder.path() / "a" / "b" / "c");
  create_folders(folder.path() / "a" / "b" / "c");
  create_folders(folder.path() / "a" / "b" / "d/");
  EXPECT_TRUE(fs::is_directory(folder.path() / "a/b/d"));
  write_file_atomically(folder.path() / "outside", "kept");
  write_file_atomically(folder.path() / "a/b/c/file", "x");
  fs::create_directory_symlink(folder.path(), folder.path() / "a/link");
  rename_durably(folder.path() / "a", folder.path() / "z");
  EXPECT_FALSE(fs::exists(folder.path() / "a"));
  EXPECT_EQ(read_text_file(folder.path() / "z/b/c/file"), "x");
  remove_tree(folder.path() / "z");
  remove_tree(folder.path() / "z");
  EXPECT_FALSE(fs::exists(folder.path() / "z"));
  EXPECT_EQ(read_text_file(folder.path() / "outside"), "kept");
}

// Stops a child after every operation of every kind; `check` sees the folder afterwards.
template <typename Prepare, typename Check>
int stop_everywhere(const std::string& test, const std::string& prefix, Prepare&& prepare,
                    Check&& check) {
  const TempFolder counting;
  prepare(counting.path());
  const TempFolder logs;
  const std::string log = (logs.path() / "log").string();
  const int status =
      run_child(test, {{kFolderVariable, counting.path().string()}, {"PENTATRON_FAULT_LOG", log}});
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  std::map<std::string, int> counts;
  const std::string text = read_text_file(log);
  for (std::size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) {
    ++counts[text.substr(at, text.find(' ', at) - at)];
  }
  int runs = 0;
  for (const auto& [kind, count] : counts) {
    for (int n = 1; n <= count; ++n, ++runs) {
      SCOPED_TRACE(kind + ":" + std::to_string(n));
      const TempFolder folder;
      prepare(folder.path());
      const int stopped =
          run_child(test, {{kFolderVariable, folder.path().string()},
                           {"PENTATRON_FAULT_STOP_AT", prefix + kind + ":" + std::to_string(n)}});
      if (prefix.empty()) {
        EXPECT_TRUE(WIFSIGNALED(stopped) && WTERMSIG(stopped) == SIGKILL) << stopped;
      } else {
        EXPECT_TRUE(WIFEXITED(stopped) && WEXITSTATUS(stopped) == 1) << stopped;
      }
      check(folder.path(), kind, n);
    }
  }
  return runs;
}

TEST(BaseFile, KilledAnywhereTheFileIsOldOrNew) {
  int old_seen = 0;
  const int runs = stop_everywhere(
      "BaseFileChild.DISABLED_ReplaceAFile", "",
      [](const fs::path& folder) { write_file_atomically(folder / "value", "old"); },
      [&](const fs::path& folder, const std::string& kind, int n) {
        // The rename and the sync of the folder after it are the second half.
        const bool renamed = kind == "rename" || (kind == "sync" && n == 2);
        old_seen += renamed ? 0 : 1;
        EXPECT_EQ(read_text_file(folder / "value"), renamed ? "new content" : "old");
      });
  EXPECT_EQ(runs, 5);  // two writes, two syncs, one rename
  EXPECT_EQ(old_seen, 3);
}

TEST(BaseFile, FullDiskLeavesTheOldFileAndNoTemporary) {
  const int runs = stop_everywhere(
      "BaseFileChild.DISABLED_ReplaceAFile",
      "error:", [](const fs::path& folder) { write_file_atomically(folder / "value", "old"); },
      [](const fs::path& folder, const std::string& kind, int n) {
        const bool renamed = kind == "sync" && n == 2;
        EXPECT_EQ(read_text_file(folder / "value"), renamed ? "new content" : "old");
        EXPECT_EQ(count_children(folder), 1U);
      });
  EXPECT_EQ(runs, 5);
}

TEST(BaseFile, TheSystemsOwnRefusalIsReported) {
  // A limit on the size of files makes the kernel refuse the write itself, without the test switch.
  const TempFolder folder;
  write_file_atomically(folder.path() / "value", "old");
  const int status = run_child("BaseFileChild.DISABLED_WriteBeyondTheLimit",
                               {{kFolderVariable, folder.path().string()}});
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(read_text_file(folder.path() / "value"), "old");
  EXPECT_EQ(count_children(folder.path()), 1U);
}

TEST(BaseFile, KilledAnywhereThePublishedFolderIsWhole) {
  const int runs = stop_everywhere(
      "BaseFileChild.DISABLED_PublishAFolder", "",
      [](const fs::path& folder) {
        create_folders(folder / "old");
        write_file_atomically(folder / "old" / "data", "old");
      },
      [](const fs::path& folder, const std::string&, int) {
        const bool saved = fs::exists(folder / "saved");
        const bool old_whole = fs::exists(folder / "old" / "data");
        EXPECT_TRUE(saved || old_whole);
        if (saved) {
          EXPECT_EQ(read_text_file(folder / "saved/part/data"), "all of it");
        }
      });
  // Writes 2; syncs: 2 new folders, file, parent after rename; rename 1; unlinks: file and folder.
  EXPECT_EQ(runs, 9);
}

TEST(BaseFault, BadSwitchIsRefused) {
  for (const char* bad : {"write", "write:", "write:0", "write:x", "writ:1", "error:", ":1", ""}) {
    const TempFolder folder;
    write_file_atomically(folder.path() / "value", "old");
    const int status =
        run_child("BaseFileChild.DISABLED_ReplaceAFile",
                  {{kFolderVariable, folder.path().string()}, {"PENTATRON_FAULT_STOP_AT", bad}});
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 1) << bad;
    EXPECT_EQ(read_text_file(folder.path() / "value"), "old");
  }
}

}  // namespace
}  // namespace pentatron
