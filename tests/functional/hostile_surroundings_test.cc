// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdlib>

#include "tests/functional/tiny_run.h"

// Pipes where files should be, limits of the system, folders that go away, numbers at the end of
// their range: a clear error at once, never a hang.
namespace pentatron::functional {
namespace {

namespace fs = std::filesystem;

// Through a shell, which sets limits or leaves the folder first.
ProgramResult call_after(const std::string& command, const std::vector<std::string>& words,
                         std::chrono::seconds timeout = std::chrono::seconds(60)) {
  std::vector<std::string> all{"launch",
                               "--nproc-per-node",
                               "1",
                               "sh",
                               "-c",
                               command + "; exec \"$0\" \"$@\"",
                               std::getenv("PENTATRON_BIN")};
  all.insert(all.end(), words.begin(), words.end());
  return run_program({.words = all, .timeout = timeout});
}

void make_pipe(const fs::path& path) {
  fs::remove(path);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
}

std::string copied_corpus() {
  const std::string prefix = (new_folder() / "corpus").string();
  for (const char* extension : {".bin", ".idx"}) {
    fs::copy_file(corpus(0) + extension, prefix + extension);
  }
  return prefix;
}

// Ends by itself, with words of its own.
void expect_clear(const ProgramResult& result, int exit_code,
                  const std::vector<std::string>& parts) {
  EXPECT_FALSE(result.timed_out) << result.describe();
  EXPECT_EQ(result.signal, 0) << result.describe();
  expect_refusal(result, exit_code, parts);
  EXPECT_EQ(count(result.err, "bug of pentatron"), 0U) << result.describe();
  EXPECT_EQ(count(result.err, "terminate called"), 0U) << result.describe();
}

}  // namespace

TEST(HostileSurroundings, A14_PipesAreNotWaitedFor) {
  for (const char* extension : {".idx", ".bin"}) {
    const std::string prefix = copied_corpus();
    make_pipe(prefix + extension);
    const Options options = base().with("--data-path", prefix);
    for (const Options& run : {options, options.with("--no-mmap-bin-files")}) {
      expect_clear(try_train(run).program, kExitIo, {prefix + extension});
    }
    expect_clear(call({"inspect_dataset", prefix}), kExitIo, {prefix + extension});
  }
  for (const char* name : {"manifest.json", "rank_00000.safetensors"}) {
    const fs::path folder = new_folder();
    (void)train(saving(base(), folder));
    make_pipe(folder / iteration_name(3) / name);
    expect_clear(try_train(base().with("--load", folder.string())).program, kExitCheckpoint,
                 {folder.string()});
    expect_clear(call({"checkpoint", "verify", folder.string()}), kExitCheckpoint, {name});
  }
  const fs::path folder = new_folder();
  (void)train(saving(base(), folder));
  make_pipe(folder / "latest_checkpointed_iteration.txt");
  EXPECT_FALSE(try_train(base().with("--load", folder.string())).program.timed_out);
}

TEST(HostileSurroundings, A14_VocabulariesPrintNothingRaw) {
  const fs::path folder = new_folder();
  write_file(folder / "merges.txt", "#version: 0.2\n");
  const std::string escapes = "{\"\\u001b[31m\\u0000behind\": 0}";
  write_file(folder / "vocab.json", escapes);
  const ProgramResult result =
      call({"preprocess_data", "--input", "/dev/null", "--output-prefix", (folder / "out").string(),
            "--tokenizer-type", "GPT2BPETokenizer", "--vocab-file",
            (folder / "vocab.json").string(), "--merge-file", (folder / "merges.txt").string()});
  expect_clear(result, kExitData, {"vocab.json:1", "behind"});
  EXPECT_EQ(result.err.find('\x1b'), std::string::npos) << result.describe();
  EXPECT_EQ(result.err.find('\0'), std::string::npos) << result.describe();
}

TEST(HostileSurroundings, A14_FewDescriptors) {
  for (const int limit : {28, 16, 10}) {
    const ProgramResult one =
        call_after(fmt::format("ulimit -n {}", limit), base().words("pretrain_gpt"));
    EXPECT_FALSE(one.timed_out) << one.describe();
    EXPECT_TRUE(one.ok() || one.exit_code == kExitIo || one.exit_code == 6) << one.describe();
    if (!one.ok()) {
      EXPECT_NE(one.err.find("Too many open files"), std::string::npos) << one.describe();
    }
  }
  // Several ranks that run out of them while they connect.
  std::vector<std::string> words{"launch",
                                 "--nproc-per-node",
                                 "2",
                                 "--grace-seconds",
                                 "2",
                                 "sh",
                                 "-c",
                                 "ulimit -n 16; exec \"$0\" \"$@\"",
                                 std::getenv("PENTATRON_BIN")};
  for (const std::string& word : base().words("pretrain_gpt")) words.push_back(word);
  const ProgramResult two = run_program({.words = words, .timeout = std::chrono::seconds(60)});
  EXPECT_FALSE(two.timed_out) << two.describe();
  EXPECT_EQ(two.signal, 0) << two.describe();
  EXPECT_EQ(count(two.err, "terminate called"), 0U) << two.describe();
}

TEST(HostileSurroundings, F16_AFolderThatIsGone) {
  const fs::path folder = new_folder() / "gone";
  fs::create_directories(folder);
  const std::string leave = fmt::format("cd {0}; rmdir {0}", folder.string());
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"version"}, base().words("pretrain_gpt"),
        base().with("--save", "checkpoints").with("--save-interval", 1).words("pretrain_gpt")}) {
    fs::create_directories(folder);
    expect_clear(call_after(leave, words), kExitIo,
                 {"the folder that this was started in is gone"});
  }
}

TEST(HostileSurroundings, F16_NumbersAtTheEndOfTheirRange) {
  expect_clear(call({"launch", "--nproc-per-node", "4294967297", "true"}), kExitConfig,
               {"--nproc-per-node 4294967297"});
  expect_clear(call(base().with("--num-workers", 1'000'000).words("pretrain_gpt")), kExitConfig,
               {"--num-workers"});
  expect_clear(call(base().with("--cpu-threads-per-rank", 1'000'000).words("pretrain_gpt")),
               kExitConfig, {"--cpu-threads-per-rank"});
  expect_clear(call({"preprocess_data", "--input", "/dev/null", "--output-prefix",
                     (new_folder() / "out").string(), "--tokenizer-type", "NullTokenizer",
                     "--vocab-size", "63", "--workers", "1000000"}),
               kExitConfig, {"--workers 1000000"});
  expect_clear(call({"train_tokenizer", "--input", "/dev/null", "--vocab-size", "300", "--output",
                     new_folder().string(), "--workers", "1000000"}),
               kExitConfig, {"--workers 1000000"});
}

// SIGXFSZ: a limit on the size of files is an error like a full disk, not the end without a word.
TEST(HostileSurroundings, F16_ALimitOnTheSizeOfFiles) {
  const fs::path folder = new_folder();
  const ProgramResult result =
      call_after("ulimit -f 4", saving(base(), folder).words("pretrain_gpt"));
  EXPECT_EQ(result.signal, 0) << result.describe();
  expect_clear(result, kExitIo, {"File too large"});
  EXPECT_TRUE(saved_iterations(folder).empty());
}

TEST(HostileSurroundings, A14_PlotsOfTheLargestNumbers) {
  const fs::path folder = new_folder();
  std::string lines;
  int iteration = 0;
  for (const char* loss : {"1e308", "-1.7e308", "1.7e308", "1.0", "4e-324"}) {
    lines +=
        fmt::format("{{\"kind\":\"train\",\"iteration\":{},\"lm_loss\":{}}}\n", ++iteration, loss);
  }
  write_file(folder / "m.jsonl", lines);
  for (const std::vector<std::string>& more :
       std::vector<std::vector<std::string>>{{}, {"--log-scale"}}) {
    std::vector<std::string> words{"plot", (folder / "m.jsonl").string(), "--output",
                                   (folder / "m.svg").string()};
    words.insert(words.end(), more.begin(), more.end());
    const ProgramResult result = call(words);
    EXPECT_TRUE(result.ok()) << result.describe();
    const std::string svg = read_file(folder / "m.svg");
    EXPECT_EQ(count(svg, "nan"), 0U);
    EXPECT_EQ(count(svg, "inf"), 0U);
    EXPECT_GT(count(svg, "<p"), 0U);
  }
}

}  // namespace pentatron::functional
