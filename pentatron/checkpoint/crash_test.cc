// SPDX-License-Identifier: Apache-2.0
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <map>

#include "pentatron/base/file.h"
#include "pentatron/base/temp_folder.h"
#include "pentatron/checkpoint/test_support.h"
#include "pentatron/checkpoint/verify.h"

// A save that is killed, or meets a full device, after each single write, sync, rename and unlink.
namespace pentatron::checkpoint {
namespace {
namespace fs = std::filesystem;
using namespace testing_support;

constexpr const char* kOwnProcess = "PENTATRON_TEST_OWN_PROCESS";
constexpr const char* kStopAt = "PENTATRON_FAULT_STOP_AT";
const std::vector<std::string> kKinds = {"write", "sync", "rename", "unlink"};

int wait_for(pid_t child) {
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return status;
}

// The fault switch is read once a process, so these tests run in a process that has used no file
// operation and started no thread, and fork from there. False in the outer process, when the inner
// one has run the test.
bool in_own_process() {
  if (std::getenv(kOwnProcess) != nullptr) return true;
  const auto* const info = ::testing::UnitTest::GetInstance()->current_test_info();
  const std::string filter =
      std::string("--gtest_filter=") + info->test_suite_name() + "." + info->name();
  const std::string program = fs::read_symlink("/proc/self/exe").string();
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv(kOwnProcess, "1", 1);
    ::execl(program.c_str(), program.c_str(), filter.c_str(), "--gtest_brief=1", nullptr);
    ::_exit(127);
  }
  EXPECT_EQ(wait_for(child), 0) << "the inner process failed";
  return false;
}

constexpr int kFailed = 3;

// Forks; the child sets `variable` and runs `body`. An Error's text goes into `message_file`.
int in_child(const std::string& variable, const std::string& value, const fs::path& message_file,
             const std::function<void()>& body) {
  const pid_t child = ::fork();
  if (child != 0) return wait_for(child);
  if (!variable.empty()) ::setenv(variable.c_str(), value.c_str(), 1);
  int code = 0;
  try {
    body();
  } catch (const std::exception& error) {
    std::ofstream(message_file) << error.what();
    code = kFailed;
  }
  ::_exit(code);
}

struct Scenario {
  std::string name;
  bool old_exists;
  std::int64_t saved;  // iteration of the save that is disturbed; the old one is 10
  std::int64_t keep;
};
const std::vector<Scenario> kScenarios = {
    {"first", false, 20, 0}, {"next", true, 20, 1}, {"replacing", true, 10, 0}};

class Bench final {
 public:
  explicit Bench(const Scenario& scenario) : scenario_(scenario) {
    fs::create_directory(start_);
    if (scenario.old_exists) {
      EXPECT_EQ(in_child("", "", message_, [&] { (void)save_single(start_, 10, 1); }), 0);
      old_hash_ = hash_of(start_ / iteration_folder(10));
    }
    reset();
    const fs::path log = temp_.path() / "log";
    EXPECT_EQ(save("PENTATRON_FAULT_LOG", log.string()), 0);
    new_hash_ = hash_of(work_ / iteration_folder(scenario.saved));
    std::ifstream lines(log);
    bool first_unlink = true;
    for (std::string kind, path; lines >> kind >> path; ++counts_[kind]) {
      if (kind != "unlink" || !scenario.old_exists || !first_unlink) continue;
      first_unlink = false;
      EXPECT_TRUE(path.ends_with("/manifest.json")) << "removed before its mark: " << path;
    }
    EXPECT_NE(old_hash_, new_hash_);
  }

  void reset() {
    fs::remove_all(work_);
    fs::copy(start_, work_, fs::copy_options::recursive);
  }
  int save(const std::string& variable, const std::string& value) {
    fs::remove(message_);
    return in_child(variable, value, message_,
                    [&] { (void)save_single(work_, scenario_.saved, 2, scenario_.keep); });
  }
  // "old", "new", "nothing", or what is wrong.
  std::string state() const {
    try {
      const Found found = find_checkpoint(work_, 0);
      if (found.result == FindResult::kNothingThere) return "nothing";
      const std::string hash = hash_of(found.folder);
      if (hash == old_hash_) return "old";
      return hash == new_hash_ ? "new" : "unknown hash";
    } catch (const std::exception& error) {
      return error.what();
    }
  }
  // A following save works and leaves no trace of the disturbed one.
  void expect_recovers() {
    ASSERT_EQ(in_child("", "", message_, [&] { (void)save_single(work_, 30, 3); }), 0);
    EXPECT_EQ(find_checkpoint(work_, 0).iteration, 30);
    EXPECT_TRUE(verify_checkpoint(work_ / iteration_folder(30)).ok);
    expect_no_hidden();
  }
  void expect_no_hidden() const {
    for (const auto& entry : fs::directory_iterator(work_)) {
      const std::string name = entry.path().filename().string();
      EXPECT_TRUE(name == kTrackerName || name.starts_with("iter_")) << name;
    }
  }
  void expect_final_names_whole() const {
    for (const auto& entry : fs::directory_iterator(work_)) {
      if (!entry.path().filename().string().starts_with("iter_")) continue;
      EXPECT_TRUE(verify_checkpoint(entry.path()).ok) << entry.path();
    }
  }
  std::string message() const { return fs::exists(message_) ? read_text_file(message_) : ""; }
  int count(const std::string& kind) { return counts_[kind]; }
  std::string before() const { return scenario_.old_exists ? "old" : "nothing"; }

 private:
  Scenario scenario_;
  TempFolder temp_;
  fs::path start_ = temp_.path() / "start";
  fs::path work_ = temp_.path() / "work";
  fs::path message_ = temp_.path() / "message";
  std::map<std::string, int> counts_;
  std::string old_hash_ = "none";
  std::string new_hash_;
};

TEST(Crash, KilledAfterAnyOperation) {
  if (!in_own_process()) return;
  for (const Scenario& scenario : kScenarios) {
    Bench bench(scenario);
    bool seen_old = false;
    bool seen_new = false;
    for (const std::string& kind : kKinds) {
      if (kind != "unlink" || scenario.old_exists) {
        ASSERT_GT(bench.count(kind), 0) << kind;
      }
      for (int n = 1; n <= bench.count(kind); ++n) {
        SCOPED_TRACE(fmt::format("{}: {} {}", scenario.name, kind, n));
        bench.reset();
        const int status = bench.save(kStopAt, fmt::format("{}:{}", kind, n));
        ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        const std::string state = bench.state();
        EXPECT_TRUE(state == bench.before() || state == "new") << state;
        seen_old = seen_old || state == bench.before();
        seen_new = seen_new || state == "new";
        bench.expect_recovers();
      }
    }
    EXPECT_TRUE(seen_old && seen_new);
  }
}

TEST(Crash, DeviceFullAtAnyOperation) {
  if (!in_own_process()) return;
  for (const Scenario& scenario : kScenarios) {
    Bench bench(scenario);
    for (const std::string& kind : kKinds) {
      for (int n = 1; n <= bench.count(kind); ++n) {
        SCOPED_TRACE(fmt::format("{}: {} {}", scenario.name, kind, n));
        bench.reset();
        const int status = bench.save(kStopAt, fmt::format("error:{}:{}", kind, n));
        const std::string state = bench.state();
        ASSERT_TRUE(WIFEXITED(status));
        if (WEXITSTATUS(status) == 0) {
          // Only removals after the commit may fail with a warning.
          EXPECT_TRUE(kind == "unlink" || kind == "sync");
          EXPECT_EQ(state, "new");
        } else {
          const std::string message = bench.message();
          EXPECT_NE(message.find("was not saved: rank 0: cannot"), std::string::npos) << message;
          EXPECT_NE(message.find("No space left on device"), std::string::npos) << message;
          bench.expect_no_hidden();
          bench.expect_final_names_whole();
          // A tracker that could not be written: the error says that the new folder is whole.
          const bool whole = message.find("is complete, but") != std::string::npos;
          EXPECT_TRUE(kind != "write" || state == bench.before() || whole) << state;
          EXPECT_TRUE(state == bench.before() || state == "new") << state;
        }
        bench.expect_recovers();
      }
    }
  }
}

TEST(Crash, DeviceFullOnOneOfTwoRanksFailsBoth) {
  if (!in_own_process()) return;
  const TempFolder temp;
  const auto save = [&](const fs::path& root, const fs::path& log) {
    comm::run_threads({.world_size = 2}, [&](comm::Backend& backend) {
      const std::unique_ptr<comm::Group> world = backend.make_group({0, 1}, "world");
      const RankState state = rank_state(root, 20, layouts()[1], backend.rank(), 2);
      try {
        (void)save_checkpoint(state.request, *world);
      } catch (const Error& error) {
        std::ofstream(log.string() + std::to_string(backend.rank())) << error.what();
      }
    });
  };
  const fs::path log = temp.path() / "log";
  ASSERT_EQ(in_child("PENTATRON_FAULT_LOG", log.string(), temp.path() / "message",
                     [&] { save(temp.path() / "whole", temp.path() / "unused"); }),
            0);
  int writes = 0;
  std::ifstream lines(log);
  for (std::string kind, path; lines >> kind >> path;) writes += kind == "write" ? 1 : 0;
  ASSERT_GT(writes, 10);
  for (int n = 1; n <= writes; ++n) {
    const fs::path root = temp.path() / fmt::format("root{}", n);
    const fs::path said = temp.path() / fmt::format("said{}_", n);
    ASSERT_EQ(in_child(kStopAt, fmt::format("error:write:{}", n), temp.path() / "message",
                       [&] { save(root, said); }),
              0);
    const std::string of_first = read_text_file(said.string() + "0");
    EXPECT_EQ(of_first, read_text_file(said.string() + "1"));
    EXPECT_NE(of_first.find("was not saved: rank "), std::string::npos) << of_first;
    EXPECT_NE(of_first.find("No space left"), std::string::npos) << of_first;
    EXPECT_FALSE(fs::exists(root / ".saving_iter_0000020"));
  }
}

}  // namespace
}  // namespace pentatron::checkpoint
