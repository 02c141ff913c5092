// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <iostream>
#include <random>
#include <thread>

#include "tests/functional/tiny_run.h"

// A run that is killed at any moment and started again ends in the undisturbed run's state.
namespace pentatron::functional {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

bool saving_now(const fs::path& folder) {
  std::error_code code;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, code)) {
    if (entry.path().filename().string().starts_with(".saving_")) return true;
  }
  return false;
}

Options frequent(const fs::path& folder, int steps) {
  return resuming(base()
                      .with("--train-iters", steps)
                      .with("--hidden-dropout", "0.1")
                      .with("--keep-checkpoints", 2),
                  folder, 1);
}

// No temporary thing is left beside the checkpoints.
void expect_clean(const fs::path& folder) {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    EXPECT_TRUE(name.starts_with("iter_") || name == "latest_checkpointed_iteration.txt")
        << "left over: " << entry.path();
  }
}

}  // namespace

TEST(Kill, AtRandomMoments) {
  constexpr int kSteps = 60;
  constexpr int kKills = 30;
  constexpr int kInsideSaves = 10;
  const auto seed = static_cast<unsigned>(std::chrono::system_clock::now().time_since_epoch() /
                                          std::chrono::milliseconds(1));
  std::cout << "seed " << seed << "\n";
  std::mt19937 random(seed);
  const fs::path whole = new_folder();
  ASSERT_TRUE(try_train(frequent(whole, kSteps)).program.ok());
  const std::string hash = state_hash(whole, kSteps);

  int kills = 0;
  int inside = 0;
  int finished = 0;
  fs::path folder = new_folder();
  while (kills < kKills || inside < kInsideSaves) {
    ASSERT_LT(kills, 10 * kKills) << "only " << inside << " kills fell inside a save";
    // Every other life ends as soon as a save is seen after its time, within its course.
    const bool wait_for_save = kills % 2 == 0;
    const auto life = std::chrono::microseconds(random() % 150'000);
    const auto into_save = std::chrono::microseconds(random() % 4'000);
    Clock::time_point begun{};
    Clock::time_point seen{};
    bool sent = false;
    const TinyRun run = try_train(
        frequent(folder, kSteps), {.observe = [&](const RunningProgram& program) {
          const Clock::time_point now = Clock::now();
          if (sent) return;
          if (begun == Clock::time_point{}) {
            if (program.out.find("[before the start of training step]") != std::string::npos) {
              begun = now;
            }
            return;
          }
          if (now - begun < life) return;
          if (wait_for_save) {
            if (seen == Clock::time_point{} && saving_now(folder)) seen = now;
            if (seen == Clock::time_point{} || now - seen < into_save) return;
          }
          sent = ::kill(program.pid, SIGKILL) == 0;
        }});
    if (run.program.signal == SIGKILL) {
      ++kills;
      // What a dead process left says where it was.
      if (saving_now(folder)) ++inside;
      continue;
    }
    ASSERT_TRUE(run.program.ok()) << run.program.describe();
    EXPECT_EQ(state_hash(folder, kSteps), hash) << "seed " << seed << ", after kill " << kills;
    expect_clean(folder);
    ++finished;
    folder = new_folder();
  }
  const TinyRun last = try_train(frequent(folder, kSteps));
  ASSERT_TRUE(last.program.ok()) << last.program.describe();
  EXPECT_EQ(state_hash(folder, kSteps), hash) << "seed " << seed;
  expect_clean(folder);
  std::cout << kills << " kills, " << inside << " inside a save, " << finished + 1
            << " runs finished\n";
}

namespace {

struct Operations {
  std::string kind;
  int number = 0;
};

// How many operations of each kind the two saves of a tiny run make.
std::vector<Operations> operations_of(const Options& options, const Options& warm_up) {
  // The data's index caches are written once, by another run.
  EXPECT_TRUE(try_train(warm_up).program.ok());
  const fs::path log = new_folder() / "operations.log";
  ProgramRequest request;
  request.words = options.words("pretrain_gpt");
  request.environment = {{"PENTATRON_FAULT_LOG", log.string()}};
  const ProgramResult run = run_program(request);
  EXPECT_TRUE(run.ok()) << run.describe();
  const std::string text = "\n" + read_file(log);
  std::vector<Operations> operations;
  for (const char* kind : {"write", "sync", "rename", "unlink"}) {
    operations.push_back({kind, static_cast<int>(count(text, std::string("\n") + kind + " "))});
    std::cout << operations.back().number << " x " << kind << "\n";
  }
  return operations;
}

// A model of ten tensors with one moment each, so that a save makes few writes.
Options two_saves(const fs::path& folder) {
  return frequent(folder, 2)
      .with("--keep-checkpoints", 1)
      .with("--num-layers", 1)
      .with("--disable-bias-linear")
      .with("--normalization", "RMSNorm")
      .with("--position-embedding-type", "none")
      .with("--optimizer", "sgd");
}

ProgramResult run_with_fault(const Options& options, const std::string& fault) {
  ProgramRequest request;
  request.words = options.words("pretrain_gpt");
  request.environment = {{"PENTATRON_FAULT_STOP_AT", fault}};
  return run_program(request);
}

// Calls check(fault, kind) for "<kind>:1" to the last operation of each kind, on two threads.
template <typename Check>
void for_each_operation(const std::vector<Operations>& operations, const Check& check) {
  std::vector<std::pair<std::string, std::string>> faults;
  for (const Operations& each : operations) {
    EXPECT_GT(each.number, 0) << "a save makes no " << each.kind;
    for (int n = 1; n <= each.number; ++n) {
      faults.emplace_back(each.kind + ":" + std::to_string(n), each.kind);
    }
  }
  std::atomic<std::size_t> next{0};
  std::vector<std::thread> workers;
  for (int i = 0; i < 2; ++i) {
    workers.emplace_back([&] {
      for (std::size_t n = next++; n < faults.size(); n = next++) {
        check(faults[n].first, faults[n].second);
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
}

}  // namespace

TEST(Kill, AfterEveryOperationOfASave) {
  const fs::path whole = new_folder();
  const std::vector<Operations> operations =
      operations_of(two_saves(whole), two_saves(new_folder()));
  const std::string hash = state_hash(whole, 2);
  for_each_operation(operations, [&](const std::string& fault, const std::string&) {
    const fs::path folder = new_folder();
    const ProgramResult killed = run_with_fault(two_saves(folder), fault);
    EXPECT_EQ(killed.signal, SIGKILL) << fault << ": " << killed.describe();
    const TinyRun again = try_train(two_saves(folder));
    ASSERT_TRUE(again.program.ok()) << fault << ": " << again.program.describe();
    EXPECT_EQ(state_hash(folder, 2), hash) << fault;
    expect_clean(folder);
  });
}

TEST(Kill, ADeviceThatFailsAtEveryOperationOfASave) {
  const fs::path whole = new_folder();
  const std::vector<Operations> operations =
      operations_of(two_saves(whole), two_saves(new_folder()));
  const std::string hash = state_hash(whole, 2);
  std::atomic<int> warned{0};
  for_each_operation(operations, [&](const std::string& fault, const std::string& kind) {
    const fs::path folder = new_folder();
    const ProgramResult failed = run_with_fault(two_saves(folder), "error:" + fault);
    ASSERT_EQ(failed.signal, 0) << fault << ": " << failed.describe();
    // A full device ends the run. Only where an older checkpoint is removed, after the new one is
    // durable, is it a warning: nothing is lost but space, until the next save removes it.
    if (failed.exit_code == 0) {
      EXPECT_TRUE(kind == "sync" || kind == "unlink") << fault << ": " << failed.describe();
      EXPECT_EQ(count(failed.err, "[warning]"), 1U) << fault << ": " << failed.describe();
      EXPECT_EQ(count(failed.err,
                      "iteration 2 is saved, but older checkpoints could not be removed (the next "
                      "save tries again)"),
                1U)
          << fault << ": " << failed.describe();
      EXPECT_EQ(state_hash(folder, 2), hash) << fault;
      const TinyRun longer = try_train(
          two_saves(folder).with("--train-iters", 3).with("--override-opt_param-scheduler"));
      ASSERT_TRUE(longer.program.ok()) << fault << ": " << longer.program.describe();
      EXPECT_EQ(count(longer.program.err, "[warning]"), 0U) << longer.program.describe();
      // The one that was loaded stays beside the newest.
      EXPECT_EQ(saved_iterations(folder), (std::vector<int>{2, 3})) << fault;
      expect_clean(folder);
      EXPECT_FALSE(fs::exists(folder / iteration_name(1))) << fault;
      ++warned;
      return;
    }
    EXPECT_EQ(failed.exit_code, 4) << fault << ": " << failed.describe();
    const TinyRun again = try_train(two_saves(folder));
    ASSERT_TRUE(again.program.ok()) << fault << ": " << again.program.describe();
    EXPECT_EQ(state_hash(folder, 2), hash) << fault;
  });
  // At least the removal of the manifest, of the shard and of the folder of iteration 1.
  EXPECT_GE(warned.load(), 3);
}

}  // namespace pentatron::functional
