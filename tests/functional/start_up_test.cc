// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/functional/tiny_run.h"

// What can be wrong before the first step: descriptors, data that changed, a new batch size.
namespace pentatron::functional {
namespace {

namespace fs = std::filesystem;

// The program through a shell that closes some of the descriptors 0 to 2.
ProgramResult call_without(const std::string& closed, const std::vector<std::string>& words) {
  std::vector<std::string> all{"launch",
                               "--nproc-per-node",
                               "1",
                               "sh",
                               "-c",
                               "exec \"$0\" \"$@\" " + closed,
                               std::getenv("PENTATRON_BIN")};
  all.insert(all.end(), words.begin(), words.end());
  return run_program({.words = all});
}

constexpr const char* kClosed[] = {"<&-",      ">&-",      "2>&-",        "<&- >&-",
                                   "<&- 2>&-", ">&- 2>&-", "<&- >&- 2>&-"};

std::string numbers() {
  std::string text;
  for (int i = 0; i < 200; ++i)
    text += fmt::format("{{\"text\": \"{} {} {}\"}}\n", i % 63, 7, i % 5);
  return text;
}

// The corpus of base() in a folder of its own, with one token of the .bin changed when asked.
std::string copied_corpus(const fs::path& folder) {
  const std::string prefix = (folder / "corpus").string();
  for (const char* extension : {".bin", ".idx"})
    fs::copy_file(corpus(0) + extension, prefix + extension);
  return prefix;
}

void change_one_token(const std::string& prefix) {
  std::string bytes = read_file(prefix + ".bin");
  bytes[bytes.size() / 2 / 2 * 2] ^= 1;  // the low byte of a 16-bit token
  write_file(prefix + ".bin", bytes);
}

}  // namespace

// A closed descriptor's number went to the next file, and log lines into it.
TEST(Faults, F1_PreprocessDataWithClosedDescriptors) {
  const fs::path folder = new_folder();
  write_file(folder / "in.jsonl", numbers() + "not JSON\n");
  const auto preprocess = [&](const std::string& name) {
    return std::vector<std::string>{"preprocess_data",
                                    "--input",
                                    (folder / "in.jsonl").string(),
                                    "--output-prefix",
                                    (folder / name).string(),
                                    "--tokenizer-type",
                                    "NullTokenizer",
                                    "--vocab-size",
                                    "63",
                                    "--skip-bad-lines"};
  };
  ASSERT_TRUE(call(preprocess("whole")).ok());
  for (std::size_t i = 0; i < std::size(kClosed); ++i) {
    const std::string name = fmt::format("closed{}", i);
    const ProgramResult result = call_without(kClosed[i], preprocess(name));
    EXPECT_EQ(result.exit_code, 0) << kClosed[i] << result.describe();
    for (const char* extension : {"_text_document.bin", "_text_document.idx"}) {
      EXPECT_EQ(read_file(folder / (name + extension)),
                read_file(folder / ("whole" + std::string(extension))))
          << kClosed[i] << extension;
    }
  }
}

TEST(Faults, F1_TrainingWithClosedDescriptors) {
  const fs::path folder = new_folder();
  const auto words = [&](const std::string& name) {
    return base()
        .with("--metrics-file", (folder / name).string())
        .with("--save", (folder / (name + "_saved")).string())
        .with("--save-interval", 2)
        .words("pretrain_gpt");
  };
  ASSERT_TRUE(call(words("whole")).ok());
  for (const char* closed : {">&- 2>&-", "<&- >&- 2>&-"}) {
    const std::string name = fmt::format("closed{}", std::string(closed).size());
    const ProgramResult result = call_without(closed, words(name));
    EXPECT_EQ(result.exit_code, 0) << closed << result.describe();
    EXPECT_EQ(timeless_lines(folder / name), timeless_lines(folder / "whole")) << closed;
    EXPECT_EQ(state_hash(folder / (name + "_saved")), state_hash(folder / "whole_saved"));
  }
}

// The data was sized by the new batch size alone: the run ended in an internal error, steps lost.
TEST(Faults, N5_ResumesWithAnotherGlobalBatch) {
  const fs::path folder = new_folder();
  const Options before = base().with("--train-iters", 12);
  (void)train(saving(before.with("--exit-interval", 8), folder));
  const Options again = resuming(before, folder).with("--override-opt_param-scheduler");
  // 32 samples are consumed, and four steps of 8 need a third epoch: another order of what was
  // seen.
  expect_refusal(try_train(again.with("--global-batch-size", 8)).program, 7,
                 {"drawn for 48 training samples, this run needs 64", "--global-batch-size"});
  const TinyRun resumed = train(again.with("--global-batch-size", 2));
  EXPECT_EQ(resumed.losses().size(), 4U) << resumed.program.describe();
  EXPECT_EQ(saved_iterations(folder), (std::vector<int>{8, 12}));
}

TEST(Faults, N5_ResumesWithAnotherBatchInSamples) {
  const fs::path folder = new_folder();
  const Options before = base().without("--train-iters").with("--train-samples", 48);
  (void)train(saving(before.with("--exit-interval", 8), folder));  // 32 samples
  const TinyRun resumed = train(resuming(before, folder)
                                    .with("--global-batch-size", 2)
                                    .with("--override-opt_param-scheduler"));
  EXPECT_EQ(resumed.losses().size(), 8U) << "the 16 samples that were left, two a step";
  const TinyRun again = train(resuming(before, folder)
                                  .with("--global-batch-size", 4)
                                  .with("--override-opt_param-scheduler"));
  EXPECT_TRUE(again.losses().empty()) << "nothing is left";
}

// Other tokens in a .bin of equal lengths: resume went on.
TEST(Faults, F9_OtherTokensAreRefusedOnResume) {
  const fs::path folder = new_folder();
  const std::string prefix = copied_corpus(folder);
  const Options run = base().with("--data-path", prefix).with("--train-iters", 4);
  const fs::path saves = folder / "saves";
  (void)train(saving(run.with("--exit-interval", 2), saves));
  change_one_token(prefix);
  expect_refusal(try_train(resuming(run, saves)).program, 7,
                 {"other tokens", "--finetune", "iter_0000002"});
  EXPECT_TRUE(try_train(resuming(run, saves).with("--finetune")).program.ok());
}

// Ranks whose machines hold other .bin files under one name trained on, each on its own tokens.
TEST(Faults, A5_RanksWithOtherTokensAreNamed) {
  const fs::path folder = new_folder();
  for (const char* rank : {"0", "1"}) {
    fs::create_directories(folder / rank);
    (void)copied_corpus(folder / rank);
  }
  change_one_token((folder / "1" / "corpus").string());
  std::vector<std::string> words{"launch",
                                 "--nproc-per-node",
                                 "2",
                                 "sh",
                                 "-c",
                                 "cd " + folder.string() + "/$RANK && exec \"$0\" \"$@\"",
                                 std::getenv("PENTATRON_BIN")};
  const std::vector<std::string> command =
      base().with("--data-path", "corpus").words("pretrain_gpt");
  words.insert(words.end(), command.begin(), command.end());
  expect_refusal(run_program({.words = words}), 2,
                 {"rank 1 reads other data than rank 0", "corpus.bin"});
}

}  // namespace pentatron::functional
