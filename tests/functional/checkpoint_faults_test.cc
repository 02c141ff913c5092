// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "tests/functional/tiny_run.h"

// --save and --load folders that are shared, damaged, foreign or of no use.
namespace pentatron::functional {
namespace {

namespace fs = std::filesystem;

constexpr int kSteps = 6;

Options run_of(int steps = kSteps) { return base().with("--train-iters", steps); }

// Iterations 2, 4 and 6.
const fs::path& whole_run() {
  static const fs::path kFolder = [] {
    const fs::path made = new_folder();
    (void)train(saving(run_of(), made, 2));
    return made;
  }();
  return kFolder;
}

fs::path copy_of_run() {
  const fs::path folder = new_folder() / "copy";
  fs::copy(whole_run(), folder, fs::copy_options::recursive);
  return folder;
}

fs::path shard(const fs::path& folder, int iteration) {
  return folder / iteration_name(iteration) / "rank_00000.safetensors";
}

void flip_byte(const fs::path& file) {
  std::string bytes = read_file(file);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  write_file(file, bytes);
}

void fill_with_zeros(const fs::path& file) {
  write_file(file, std::string(fs::file_size(file), '\0'));
}

bool contains(const std::string& text, const std::string& part) { return count(text, part) > 0; }

}  // namespace

// A3. While one process trains, another is refused at once by name; killed, it is replaced.
TEST(CheckpointFaults, A3_TwoRunsOfOneSaveFolder) {
  const fs::path folder = new_folder();
  ProgramResult second;
  pid_t first = -1;
  const TinyRun run = try_train(
      resuming(run_of(100'000), folder, 100'000), {.observe = [&](const RunningProgram& program) {
        if (first > 0 || program.out.find("] iteration ") == std::string::npos) return;
        first = program.pid;
        second = call(saving(run_of(2), folder).words("pretrain_gpt"));
        ::kill(program.pid, SIGKILL);
      }});
  ASSERT_GT(first, 0) << run.program.describe();
  expect_refusal(second, 2, {folder.string(), "process " + std::to_string(first) + " on "});
  EXPECT_TRUE(saved_iterations(folder).empty());
  EXPECT_FALSE(contains(second.out, "] iteration "));

  const TinyRun third = train(resuming(run_of(2), folder));
  EXPECT_TRUE(contains(third.program.err, "took over the lock")) << third.program.err;
  EXPECT_TRUE(contains(third.program.err, "process " + std::to_string(first) + " on "));
  EXPECT_EQ(saved_iterations(folder), std::vector<int>{2});
  // Nothing stays of it, and who only evaluates needs none.
  EXPECT_FALSE(fs::exists(folder / ".pentatron_lock"));
}

// F2 = A7. One process and two ranks.
TEST(CheckpointFaults, F2_DamagedContentsGiveWayToTheNewestWholeOne) {
  const std::string undisturbed = state_hash(whole_run(), kSteps);
  for (const auto& damage : {flip_byte, fill_with_zeros}) {
    for (const int ranks : {1, 2}) {
      const fs::path folder = copy_of_run();
      damage(shard(folder, 6));
      Options options = resuming(run_of(), folder, 2);
      if (ranks > 1) {
        options = options.with("--distributed-backend", "threads").with("--world-size", ranks);
      }
      expect_refusal(try_train(options.with("--ckpt-step", 6)).program, 7,
                     {"--ckpt-step 6 cannot be used", shard(folder, 6).string()});
      const TinyRun run = train(options);
      EXPECT_TRUE(contains(run.program.err, "iteration 6 does not verify")) << run.program.err;
      EXPECT_TRUE(contains(run.program.err, shard(folder, 6).string())) << run.program.err;
      EXPECT_TRUE(contains(run.program.err, "using iteration 4")) << run.program.err;
      EXPECT_EQ(run.series("train", "iteration"), (std::vector<double>{5, 6}));
      if (ranks == 1) EXPECT_EQ(state_hash(folder, kSteps), undisturbed);
    }
  }
}

TEST(CheckpointFaults, F2_GenerateTakesTheWholeOneToo) {
  const fs::path folder = copy_of_run();
  flip_byte(shard(folder, 6));
  const ProgramResult result = call({"generate", "--load", folder.string(), "--prompt", "1 2 3",
                                     "--max-new-tokens", "2", "--device", "cpu"});
  EXPECT_TRUE(result.ok()) << result.describe();
  EXPECT_TRUE(contains(result.err, "using iteration 4")) << result.describe();
}

TEST(CheckpointFaults, F3_VerifyAndHashNameTheDamagedOne) {
  const std::vector<std::pair<std::string, std::function<void(const fs::path&)>>> damages = {
      {"flipped byte", [](const fs::path& f) { flip_byte(shard(f, 6)); }},
      {"missing shard", [](const fs::path& f) { fs::remove(shard(f, 6)); }},
      {"cut shard", [](const fs::path& f) { fs::resize_file(shard(f, 6), 100); }},
      {"torn manifest",
       [](const fs::path& f) { fs::resize_file(f / iteration_name(6) / "manifest.json", 40); }}};
  for (const auto& [name, make] : damages) {
    SCOPED_TRACE(name);
    const fs::path folder = copy_of_run();
    make(folder);
    const std::string damaged = (folder / iteration_name(6)).string();
    const ProgramResult verify = call({"checkpoint", "verify", folder.string()});
    expect_refusal(verify, 7, {damaged, "--ckpt-step 4"});
    EXPECT_TRUE(contains(verify.out, damaged + ": damaged")) << verify.describe();
    EXPECT_TRUE(verify.err.starts_with("error: ")) << verify.err;
    const ProgramResult hash = call({"checkpoint", "hash", folder.string()});
    expect_refusal(hash, 7, {damaged});
    EXPECT_EQ(hash.out, "");
    EXPECT_TRUE(call({"checkpoint", "verify", folder.string(), "--ckpt-step", "4"}).ok());
    const ProgramResult all = call({"checkpoint", "verify", folder.string(), "--all"});
    expect_refusal(all, 7, {damaged});
    EXPECT_TRUE(contains(all.out, "2 of 3 checkpoints are good")) << all.describe();
  }
  const ProgramResult good = call({"checkpoint", "verify", whole_run().string(), "--all"});
  EXPECT_TRUE(good.ok()) << good.describe();
  EXPECT_EQ(count(good.out, ": good ("), 3U) << good.out;
  // An older one that is damaged shows with --all alone.
  const fs::path folder = copy_of_run();
  flip_byte(shard(folder, 2));
  EXPECT_TRUE(call({"checkpoint", "verify", folder.string()}).ok());
  expect_refusal(call({"checkpoint", "verify", folder.string(), "--all"}), 7,
                 {(folder / iteration_name(2)).string()});
}

// F4: nothing of another program is deleted, and the run gets its name.
TEST(CheckpointFaults, F4_AForeignCheckpointIsKept) {
  const fs::path folder = new_folder();
  const fs::path foreign = folder / iteration_name(2) / "model.bin";
  fs::create_directories(foreign.parent_path());
  write_file(foreign, "weights of another program");
  const TinyRun run = train(saving(run_of(2), folder));
  EXPECT_EQ(saved_iterations(folder), std::vector<int>{2});
  const std::string kept = (folder / iteration_name(2)).string() + ".set_aside_1";
  EXPECT_TRUE(contains(run.program.err, kept)) << run.program.err;
  EXPECT_EQ(read_file(fs::path(kept) / "model.bin"), "weights of another program");
}

// F11 = A9: before the first step, and nothing is changed.
TEST(CheckpointFaults, F11_UselessSaveFoldersAreRefusedAtTheStart) {
  const fs::path folder = new_folder();
  write_file(folder / "file", "x");
  fs::create_symlink(folder / "nothing", folder / "link");
  const auto refused = [](const fs::path& save, int code, const std::string& part,
                          bool as_nobody = false) {
    const Options options = saving(run_of().without("--data-cache-path"), save);
    const TinyRun run = try_train(options, {.as_nobody = as_nobody});
    expect_refusal(run.program, code, {save.string(), part});
    EXPECT_FALSE(contains(run.program.out, "] iteration ")) << run.program.out;
  };
  refused(folder / "file", 2, "this is a file");
  refused(folder / "link", 2, "which is not there");
  EXPECT_EQ(read_file(folder / "file"), "x");
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  // Root may write anywhere, so the program runs as somebody else.
  fs::permissions(folder.parent_path(), fs::perms(0755));
  fs::create_directory(folder / "locked");
  fs::permissions(folder / "locked", fs::perms(0555));
  refused(folder / "locked", 4, "cannot write there", ::getuid() == 0);
  refused(folder / "locked" / "below", 4, "cannot create folder", ::getuid() == 0);
  fs::permissions(folder / "locked", fs::perms(0755));
  // Only evaluated: nothing is asked of it.
  const TinyRun evaluated = train(saving(base(), folder / "file")
                                      .with("--skip-train")
                                      .with("--eval-iters", 1)
                                      .with("--load", whole_run().string()));
  EXPECT_EQ(evaluated.series("validation", "iteration").size(), 1U);
}

// F12: --finetune with one folder for --load and --save, stopped and restarted.
TEST(CheckpointFaults, F12_AFineTuningRunResumesItself) {
  const Options tune =
      base().with("--data-path", corpus(1)).with("--train-iters", 5).with("--finetune");
  const fs::path straight = copy_of_run();
  const TinyRun undisturbed = train(resuming(tune, straight, 2));
  EXPECT_EQ(undisturbed.series("train", "iteration"), (std::vector<double>{1, 2, 3, 4, 5}));

  const fs::path folder = copy_of_run();
  const TinyRun first = train(resuming(tune.with("--exit-interval", 3), folder, 2));
  EXPECT_EQ(first.series("train", "iteration"), (std::vector<double>{1, 2, 3}));
  const TinyRun second = train(resuming(tune, folder, 2));
  EXPECT_EQ(second.series("train", "iteration"), (std::vector<double>{4, 5}));
  EXPECT_TRUE(contains(second.program.err, "goes on")) << second.program.err;
  EXPECT_EQ(state_hash(folder, 5), state_hash(straight, 5));
  EXPECT_EQ(second.last_loss(), undisturbed.last_loss());
  // What it was tuned from is still there.
  EXPECT_EQ(state_hash(folder, kSteps), state_hash(whole_run(), kSteps));
  // Other data is another run: it does not silently begin anew over this one.
  expect_refusal(try_train(resuming(tune.with("--data-path", corpus(0)), folder, 2)).program, 7,
                 {"other data"});
  // Elsewhere, the tuned weights are but weights.
  const TinyRun anew = train(saving(tune, new_folder()).with("--load", folder.string()));
  EXPECT_EQ(anew.series("train", "iteration"), (std::vector<double>{1, 2, 3, 4, 5}));
}

// F16: a plain file under the name of an iteration.
TEST(CheckpointFaults, F16_AFileNamedAsAnIteration) {
  const fs::path folder = new_folder();
  (void)train(saving(run_of(4).with("--exit-interval", 2), folder, 2));
  write_file(folder / iteration_name(4), "a letter");
  const TinyRun run = train(resuming(run_of(4), folder, 2));
  EXPECT_EQ(run.series("train", "iteration"), (std::vector<double>{3, 4}));
  EXPECT_EQ(saved_iterations(folder), (std::vector<int>{2, 4}));
  EXPECT_EQ(read_file((folder / iteration_name(4)).string() + ".set_aside_1"), "a letter");
}

// F15: a blank and a damaged line at resume.
TEST(CheckpointFaults, F15_DamagedMetricsArePassedOver) {
  const fs::path folder = new_folder();
  const std::string metrics = (folder / "metrics.jsonl").string();
  const Options run = resuming(run_of(4), folder, 2).with("--metrics-file", metrics);
  (void)train(run.with("--exit-interval", 2));
  std::ofstream(metrics, std::ios::app) << "\n{\"kind\":\"tra\n";
  const TinyRun second = train(run);
  EXPECT_EQ(second.series("train", "iteration"), (std::vector<double>{1, 2, 3, 4}));
  EXPECT_TRUE(contains(second.program.err, "2 lines are no metrics")) << second.program.err;
}

// A14: files that cannot grow for a while (the kernel refuses, as on a full disk) cost reports, not
// the run.
TEST(CheckpointFaults, A14_AFullDiskUnderTheReportsDoesNotEndTheRun) {
  constexpr int kManySteps = 400;
  const fs::path folder = new_folder();
  const fs::path save = folder / "save";
  const std::string metrics = (folder / "metrics.jsonl").string();
  const Options options = saving(run_of(kManySteps), save)
                              .with("--metrics-file", metrics)
                              .with("--tensorboard-dir", (folder / "events").string())
                              .with("--tensorboard-queue-size", 1);
  const auto limit = [](pid_t pid, rlim_t bytes) {
    const rlimit files{bytes, RLIM_INFINITY};
    EXPECT_EQ(::prlimit(pid, RLIMIT_FSIZE, &files, nullptr), 0);
  };
  int phase = 0;
  const TinyRun run =
      try_train(options, {.observe = [&](const RunningProgram& program) {
                  if (phase == 0 && program.out.find("] iteration ") != std::string::npos) {
                    limit(program.pid, 4096);
                    phase = 1;
                  } else if (phase == 1 &&
                             program.err.find("--metrics-file " + metrics + ": cannot write") !=
                                 std::string::npos &&
                             program.err.find("--tensorboard-dir: the file") != std::string::npos) {
                    limit(program.pid, RLIM_INFINITY);
                    phase = 2;
                  }
                }});
  EXPECT_EQ(phase, 2);
  EXPECT_TRUE(run.program.ok()) << run.program.describe();
  EXPECT_EQ(saved_iterations(save), std::vector<int>{kManySteps});
  EXPECT_TRUE(contains(run.program.err, "is written again")) << run.program.err;
  // What is there is whole, and reaches to the end.
  const std::vector<double> iterations = run.series("train", "iteration");
  ASSERT_FALSE(iterations.empty());
  EXPECT_LT(iterations.size(), std::size_t{kManySteps});
  EXPECT_EQ(iterations.back(), kManySteps);
}

}  // namespace pentatron::functional
