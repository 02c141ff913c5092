// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "pentatron/datasets/partial_run.h"
#include "pentatron/datasets/preprocess.h"
#include "pentatron/datasets/preprocess_test_support.h"

// preprocess() killed, or on a full disk, at any of its writes.
namespace pentatron::datasets {
namespace {

namespace fs = std::filesystem;
using testing::ByteTokenizer;
using testing::many_lines;
using testing::names_in;

PreprocessOptions options_in(const fs::path& folder) {
  PreprocessOptions options;
  options.inputs = {(folder / "in.jsonl").string()};
  options.output_prefix = (folder / "out").string();
  options.log_interval = 0;
  return options;
}

// With a state after every batch.
PreprocessOptions resumable_in(const fs::path& folder) {
  PreprocessOptions options = options_in(folder);
  options.resume = true;
  options.checkpoint_bytes = 1;
  options.json_keys = {"text", "title"};
  return options;
}

std::string two_keys(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    text += fmt::format("{{\"text\": \"{}\", \"title\": \"t{}\"}}\n",
                        std::string(static_cast<std::size_t>(i % 997), 'a' + i % 26), i);
  }
  return text;
}

// The tests named Child run in the folder of the environment when a fault test below starts them in
// a process of their own; else in a folder of their own, on `text`.
class Child final {
 public:
  void run(const PreprocessOptions& options, const std::string& text) const {
    if (given_ == nullptr) testing::write_text(options.inputs[0], text);
    (void)preprocess(options, ByteTokenizer());
  }
  [[nodiscard]] fs::path folder() const { return given_ == nullptr ? own_.path() : given_; }
  [[nodiscard]] std::int64_t num_documents(const std::string& key) const {
    return IndexedDataset((folder() / ("out_" + key + "_document")).string()).num_documents();
  }

 private:
  const TempFolder own_;
  const char* const given_ = std::getenv("PENTATRON_TEST_FOLDER");
};

TEST(PreprocessFaults, ChildWritesBothFiles) {
  const Child child;
  child.run(options_in(child.folder()), many_lines(100));
  EXPECT_EQ(child.num_documents("text"), 98);
}

TEST(PreprocessFaults, ChildWritesTwoKeys) {
  const Child child;
  PreprocessOptions options = options_in(child.folder());
  options.json_keys = {"text", "title"};
  child.run(options, two_keys(100));
  EXPECT_EQ(child.num_documents("title"), 100);
}

TEST(PreprocessFaults, ChildWritesWithAState) {
  const Child child;
  child.run(resumable_in(child.folder()), two_keys(1500));
  EXPECT_EQ(child.num_documents("title"), 1500);
  EXPECT_FALSE(fs::exists(child.folder() / "out.partial"));
}

// Exit status of a test above with a fault planned.
int run_with_fault(
    const fs::path& folder, const std::string& fault,
    const char* child_test = "--gtest_filter=PreprocessFaults.ChildWritesBothFiles") {
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv("PENTATRON_TEST_FOLDER", folder.c_str(), 1);
    ::setenv("PENTATRON_FAULT_STOP_AT", fault.c_str(), 1);
    std::freopen("/dev/null", "w", stdout);
    ::execl("/proc/self/exe", "datasets_test", child_test, nullptr);
    ::_exit(99);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return status;
}

TEST(PreprocessFaults, KilledAtEveryOperationLeavesNoHalfFile) {
  int killed = 0;
  for (const std::string kind : {"write", "sync", "rename"}) {
    bool finished = false;
    for (int n = 1; n < 50 && !finished; ++n) {
      const TempFolder folder;
      testing::write_text(folder.path() / "in.jsonl", many_lines(100));
      const int status = run_with_fault(folder.path(), fmt::format("{}:{}", kind, n));
      const std::string prefix = (folder.path() / "out_text_document").string();
      finished = WIFEXITED(status);
      ASSERT_TRUE(finished ? WEXITSTATUS(status) == 0 : WTERMSIG(status) == SIGKILL) << status;
      if (!finished) ++killed;
      // An index is there only with its whole corpus.
      if (finished || fs::exists(prefix + ".idx")) {
        EXPECT_EQ(IndexedDataset(prefix).num_documents(), 98) << kind << n;
      }
      if (fs::exists(prefix + ".bin")) {
        EXPECT_EQ(fs::file_size(prefix + ".bin"), 4659U * 2U) << kind << n;
      }
    }
    EXPECT_TRUE(finished) << kind;
  }
  EXPECT_GE(killed, 8);
}

TEST(PreprocessFaults, FullDiskLeavesNothingUnderAFinalName) {
  for (const std::string fault : {"error:write:1", "error:write:2", "error:sync:1", "error:sync:2",
                                  "error:rename:1", "error:rename:2"}) {
    const TempFolder folder;
    testing::write_text(folder.path() / "in.jsonl", many_lines(100));
    const int status = run_with_fault(folder.path(), fault);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_NE(WEXITSTATUS(status), 0) << fault;
    EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"in.jsonl"}) << fault;
  }
}

// Nor one of two keys because of the other.
TEST(PreprocessFaults, FullDiskShowsNoneOfSeveralKeys) {
  int failed = 0;
  for (const std::string kind : {"write", "sync", "rename"}) {
    bool finished = false;
    for (int n = 1; n < 50 && !finished; ++n) {
      const TempFolder folder;
      testing::write_text(folder.path() / "in.jsonl", two_keys(100));
      const int status = run_with_fault(folder.path(), fmt::format("error:{}:{}", kind, n),
                                        "--gtest_filter=PreprocessFaults.ChildWritesTwoKeys");
      ASSERT_TRUE(WIFEXITED(status));
      finished = WEXITSTATUS(status) == 0;
      if (finished) continue;
      ++failed;
      EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"in.jsonl"}) << kind << n;
    }
    EXPECT_TRUE(finished) << kind;
  }
  EXPECT_GE(failed, 12);
}

// Tokens whose index cannot be named go back to the unfinished run, which goes on from them.
TEST(PreprocessFaults, FullDiskAtTheNamesKeepsTheState) {
  const char* const child = "--gtest_filter=PreprocessFaults.ChildWritesWithAState";
  std::size_t renames = 0;
  {
    const TempFolder folder;
    testing::write_text(folder.path() / "in.jsonl", two_keys(1500));
    ::setenv("PENTATRON_FAULT_LOG", (folder.path() / "log").c_str(), 1);
    const int status = run_with_fault(folder.path(), "write:1000000", child);
    ::unsetenv("PENTATRON_FAULT_LOG");
    ASSERT_EQ(status, 0);
    const std::string log = read_text_file(folder.path() / "log");
    for (std::size_t at = 0; (at = log.find("rename ", at)) != std::string::npos; ++at) ++renames;
  }
  ASSERT_GE(renames, 5U);  // of states, then a .bin and an .idx of each key
  for (std::size_t n = renames - 3; n <= renames; ++n) {
    const TempFolder folder;
    testing::write_text(folder.path() / "in.jsonl", two_keys(1500));
    const int status = run_with_fault(folder.path(), fmt::format("error:rename:{}", n), child);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_NE(WEXITSTATUS(status), 0) << n;
    EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{"in.jsonl", "out.partial"})) << n;
    ::testing::internal::CaptureStderr();
    const PreprocessStats stats = preprocess(resumable_in(folder.path()), ByteTokenizer());
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find("going on at "), std::string::npos) << said;
    EXPECT_EQ(stats.keys[1].documents, 1500);
    EXPECT_EQ(IndexedDataset((folder.path() / "out_title_document").string()).num_documents(),
              1500);
  }
}

// Killed at every third operation of each kind: whatever stands under a final name is whole, and a
// last run without a fault ends in the bytes of one that was never disturbed.
TEST(PreprocessFaults, KilledAtEveryOperationGoesOn) {
  const char* const child = "--gtest_filter=PreprocessFaults.ChildWritesWithAState";
  const TempFolder whole;
  testing::write_text(whole.path() / "in.jsonl", two_keys(1500));
  PreprocessOptions plain = resumable_in(whole.path());
  plain.resume = false;
  (void)preprocess(plain, ByteTokenizer());
  int killed = 0;
  int went_on = 0;
  for (const std::string kind : {"write", "sync", "rename", "unlink"}) {
    bool finished = false;
    for (int n = 1; n < 100 && !finished; n += 3) {
      const TempFolder folder;
      testing::write_text(folder.path() / "in.jsonl", two_keys(1500));
      const int status = run_with_fault(folder.path(), fmt::format("{}:{}", kind, n), child);
      finished = WIFEXITED(status);
      ASSERT_TRUE(finished ? WEXITSTATUS(status) == 0 : WTERMSIG(status) == SIGKILL) << status;
      if (finished) break;
      ++killed;
      PreprocessOptions options = resumable_in(folder.path());
      // What got its final name before the kill is replaced.
      options.force = true;
      const bool had_state = fs::exists(folder.path() / "out.partial" / "state.json");
      if (had_state) ++went_on;
      (void)preprocess(options, ByteTokenizer());
      for (const std::string name : {"out_text_document", "out_title_document"}) {
        for (const std::string extension : {".bin", ".idx"}) {
          EXPECT_EQ(testing::md5_of_file(folder.path() / (name + extension)),
                    testing::md5_of_file(whole.path() / (name + extension)))
              << kind << n << name << extension;
        }
      }
      EXPECT_FALSE(fs::exists(folder.path() / "out.partial")) << kind << n;
    }
    EXPECT_TRUE(finished) << kind;
  }
  EXPECT_GE(killed, 20);
  EXPECT_GE(went_on, 12);
}

TEST(PreprocessFaults, FullDiskKeepsTheStateAndGoesOn) {
  const char* const child = "--gtest_filter=PreprocessFaults.ChildWritesWithAState";
  const TempFolder folder;
  testing::write_text(folder.path() / "in.jsonl", two_keys(1500));
  const int status = run_with_fault(folder.path(), "error:write:20", child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_NE(WEXITSTATUS(status), 0);
  EXPECT_FALSE(fs::exists(folder.path() / "out_text_document.bin"));
  PreprocessOptions options = resumable_in(folder.path());
  ::testing::internal::CaptureStderr();
  const PreprocessStats stats = preprocess(options, ByteTokenizer());
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("going on at "), std::string::npos) << said;
  EXPECT_EQ(stats.keys[1].documents, 1500);
  EXPECT_EQ(stats.lines, 1500);
}

class Unfinished : public ::testing::Test {
 protected:
  // A run of other options or inputs than the one that lies there is refused.
  void SetUp() override {
    testing::write_text(folder_.path() / "in.jsonl", two_keys(1500) + "nonsense\n");
    options_ = resumable_in(folder_.path());
    EXPECT_NE(error().find("in.jsonl:1501:"), std::string::npos);
    ASSERT_TRUE(fs::exists(partial() / "state.json"));
  }
  std::string error() {
    try {
      (void)preprocess(options_, ByteTokenizer());
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  // What a run that ends well writes to standard error.
  std::string said() {
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(error(), "");
    return ::testing::internal::GetCapturedStderr();
  }
  [[nodiscard]] std::int64_t num_titles() const {
    return IndexedDataset((folder_.path() / "out_title_document").string()).num_documents();
  }
  [[nodiscard]] fs::path partial() const { return folder_.path() / "out.partial"; }

  TempFolder folder_;
  PreprocessOptions options_;
};

TEST_F(Unfinished, OtherOptionsAreRefused) {
  const PreprocessOptions same = options_;
  const auto refused = [&] {
    const std::string message = error();
    options_ = same;
    return message.find("unfinished run of other options") != std::string::npos;
  };
  options_.append_eod = true;
  EXPECT_TRUE(refused());
  options_.json_keys = {"text"};
  EXPECT_TRUE(refused());
  options_.split_sentences = true;
  EXPECT_TRUE(refused());
  options_.workers = 3;  // decides nothing
  EXPECT_FALSE(refused());
  testing::write_text(folder_.path() / "in.jsonl", two_keys(1501));
  EXPECT_TRUE(refused());
  options_.inputs = {"-"};
  EXPECT_NE(error().find("--resume needs files"), std::string::npos);
}

// The bad last line becomes a blank one, behind the back of the state: the run can end now.
void mend_input(const fs::path& input) {
  const auto time = fs::last_write_time(input);
  testing::write_text(input, two_keys(1500) + "        \n");
  fs::last_write_time(input, time);
}

TEST_F(Unfinished, GoesOnFromItsState) {
  mend_input(folder_.path() / "in.jsonl");
  EXPECT_NE(said().find("going on at "), std::string::npos);
}

TEST_F(Unfinished, DamagedStateStartsAgain) {
  mend_input(folder_.path() / "in.jsonl");
  fs::resize_file(partial() / "state.json", 10);
  EXPECT_NE(said().find("starting again, the state"), std::string::npos);
  EXPECT_EQ(num_titles(), 1500);
}

TEST_F(Unfinished, LostTokensStartAgain) {
  mend_input(folder_.path() / "in.jsonl");
  fs::resize_file(partial() / "out_text_document.tokens", 10);
  EXPECT_NE(said().find("starting again: "), std::string::npos);
  EXPECT_EQ(num_titles(), 1500);
}

TEST(PartialRun, IsHeldByOneRun) {
  const TempFolder folder;
  const std::string prefix = (folder.path() / "out").string();
  const PartialRun held(prefix, "a");
  EXPECT_THROW(PartialRun(prefix, "a"), Error);
}

}  // namespace
}  // namespace pentatron::datasets
