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

// Options of which one rank has another value: a crash, a hang, or a silent split.
TEST(Faults, A6_OptionsThatDifferAreNamed) {
  struct Case {
    const char* words;  // of rank 1 alone
    std::vector<std::string> parts;
  };
  const std::vector<Case> cases = {
      {"--bf16", {"precision", "\"fp32\" on rank 0", "\"bf16\" on rank 1"}},
      {"--tensor-model-parallel-size 2",
       {"--tensor-model-parallel-size is 1 on rank 0, 2 on rank 1"}},
      {"--micro-batch-size 1", {"--micro-batch-size is 2 on rank 0, 1 on rank 1"}},
      {"--exit-interval 2", {"--exit-interval is 0 on rank 0, 2 on rank 1"}},
      {"--save /tmp/elsewhere --save-interval 2",
       {"--save is \"\" on rank 0, \"/tmp/elsewhere\" on rank 1"}},
      {"--no-check-for-nan-in-loss-and-grad",
       {"--no-check-for-nan-in-loss-and-grad is false on rank 0, true on rank 1"}},
      {"--seq-length 8 --max-position-embeddings 8",
       {"--seq-length is 16 on rank 0, 8 on rank 1", "--max-position-embeddings"}}};
  for (const Case& one : cases) {
    std::vector<std::string> words{
        "launch",
        "--nproc-per-node",
        "2",
        "sh",
        "-c",
        fmt::format("[ $RANK = 1 ] && more='{}'; exec \"$0\" \"$@\" $more", one.words),
        std::getenv("PENTATRON_BIN")};
    const std::vector<std::string> command = base().words("pretrain_gpt");
    words.insert(words.end(), command.begin(), command.end());
    const ProgramResult result = run_program({.words = words});
    expect_refusal(result, 2, {"the ranks have different options"});
    expect_refusal(result, 2, one.parts);
  }
}

TEST(Faults, F13_UnknownHostEndsAtOnce) {
  ProgramRequest request;
  request.environment = {{"RANK", "1"},        {"WORLD_SIZE", "2"},
                         {"LOCAL_RANK", "0"},  {"LOCAL_WORLD_SIZE", "1"},
                         {"MASTER_PORT", "9"}, {"MASTER_ADDR", "no such host"}};
  request.timeout = std::chrono::milliseconds(30'000);
  const TinyRun run = try_train(base(), request);
  expect_refusal(run.program, 6, {"cannot resolve", "no such host", "MASTER_ADDR"});
  EXPECT_EQ(count(run.program.err, "frame #"), 0U) << run.program.err;
}

// A torchrun line works as it is; what this launcher does not do is refused.
TEST(Faults, F8_LaunchTakesTorchrunsSpellings) {
  const std::vector<std::string> show{"sh", "-c",
                                      "echo $RANK of $WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT"};
  const auto launched = [&](std::vector<std::string> words) {
    words.insert(words.begin(), "launch");
    words.insert(words.end(), show.begin(), show.end());
    return call(words);
  };
  const ProgramResult one = launched({"--nproc_per_node=2", "--standalone", "--nnodes", "1:1",
                                      "--rdzv_backend", "c10d", "--max_restarts=0", "--no_python"});
  EXPECT_TRUE(one.ok()) << one.describe();
  EXPECT_EQ(count(one.out, "0 of 2 at 127.0.0.1:"), 1U) << one.out;
  EXPECT_EQ(count(one.out, "1 of 2 at 127.0.0.1:"), 1U) << one.out;
  const ProgramResult two = launched({"--nnodes=2", "--node_rank", "1", "--nproc_per_node", "2",
                                      "--rdzv_id", "job7", "--rdzv_endpoint=node0:29511"});
  EXPECT_TRUE(two.ok()) << two.describe();
  EXPECT_EQ(count(two.out, "2 of 4 at node0:29511"), 1U) << two.out;
  const ProgramResult v6 = launched({"--rdzv-endpoint", "[::1]:29512"});
  EXPECT_EQ(count(v6.out, "0 of 1 at [::1]:29512"), 1U) << v6.describe();
  expect_refusal(launched({"--max-restarts", "3"}), 2, {"--max-restarts 3"});
  expect_refusal(launched({"--rdzv-backend", "etcd"}), 2, {"--rdzv-backend etcd"});
  expect_refusal(launched({"--nnodes", "1:4"}), 2, {"--nnodes 1:4"});
  expect_refusal(launched({"--nproc-per-node", "4294967297"}), 2, {"4294967297"});
  expect_refusal(launched({"--standalone", "--nnodes", "2"}), 2, {"--standalone"});
}

}  // namespace pentatron::functional
