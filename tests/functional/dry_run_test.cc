// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/functional/tiny_run.h"

// `pretrain_gpt --dry-run`.
namespace pentatron::functional {
namespace {

Options planned(int ranks) { return base().with("--dry-run").with("--world-size", ranks); }

// Everything but the options of one layout is there.
Options llama_405b() {
  return Options{{"--model-preset", {"llama3.1-405b"}},
                 {"--tokenizer-type", {"NullTokenizer"}},
                 {"--vocab-size", {"128255"}},
                 {"--mock-data", {}},
                 {"--train-iters", {"1"}},
                 {"--lr", {"1e-4"}},
                 {"--bf16", {}},
                 {"--seq-length", {"8192"}},
                 {"--micro-batch-size", {"1"}},
                 {"--global-batch-size", {"2048"}},
                 {"--use-distributed-optimizer", {}},
                 {"--tensor-model-parallel-size", {"8"}},
                 {"--sequence-parallel", {}},
                 {"--pipeline-model-parallel-size", {"16"}},
                 {"--decoder-first-pipeline-num-layers", {"7"}},
                 {"--decoder-last-pipeline-num-layers", {"7"}},
                 {"--dry-run", {}},
                 {"--world-size", {"16384"}}};
}

nlohmann::json plan_of(const Options& options) {
  const std::filesystem::path file = new_folder() / "plan.json";
  const ProgramResult result =
      call(options.with("--dry-run-json", file.string()).words("pretrain_gpt"));
  EXPECT_TRUE(result.ok()) << result.describe();
  return nlohmann::json::parse(read_file(file), nullptr, /*allow_exceptions=*/false);
}

}  // namespace

// Without a launcher, data, or a place for checkpoints that is looked at.
TEST(Options, DryRun) {
  const std::filesystem::path folder = new_folder();
  const Options options = planned(4)
                              .with("--pipeline-model-parallel-size", 2)
                              .with("--save", (folder / "saved").string())
                              .with("--save-interval", 1)
                              .with("--metrics-file", (folder / "metrics").string())
                              .with("--data-path", (folder / "no-such-corpus").string());
  const ProgramResult result = call(options.words("pretrain_gpt"));
  ASSERT_TRUE(result.ok()) << result.describe();
  for (const char* part :
       {"dry run of 4 ranks: tensor 1 x context 1 x data 2 x pipeline 2\n",
        "\nrank 0 (dp 0, pp 0):", "embedding, layer 0\n", "\nmemory  ",
        "\ncommunication of rank 0 in a step\n", "\npipeline: 1f1b, 2 ranks with 1 stage each, "}) {
    EXPECT_EQ(count(result.out, part), 1U) << part << "\n" << result.out;
  }
  std::istringstream lines(result.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << line;
  EXPECT_TRUE(std::filesystem::is_empty(folder)) << "nothing is written";
  const ProgramResult other = call(options.with("--rank", 3).words("pretrain_gpt"));
  EXPECT_EQ(count(other.out, "\nrank 3 (dp 1, pp 1): layer 1, loss\n"), 1U) << other.describe();
  // A run of one rank is planned alike.
  EXPECT_EQ(
      count(call(base().with("--dry-run").words("pretrain_gpt")).out, "communication: none\n"), 1U);
}

TEST(Options, DryRunJson) {
  const nlohmann::json plan = plan_of(planned(2).with("--use-distributed-optimizer"));
  EXPECT_EQ(plan.at("world_size"), 2);
  EXPECT_EQ(plan.at("axes").at("dp"), 2);
  EXPECT_GT(plan.at("rank").at("memory").at("total"), 0);
  EXPECT_GT(plan.at("traffic").size(), 0U);
  expect_refusal(call(base().with("--dry-run-json", "x.json").words("pretrain_gpt")), 2,
                 {"--dry-run-json needs --dry-run"});
}

TEST(DryRun, RefusesWhatAStartRefuses) {
  expect_refusal(call(planned(6).with("--pipeline-model-parallel-size", 4).words("pretrain_gpt")),
                 2, {"6 ranks do not divide by", "--pipeline-model-parallel-size 4"});
  expect_refusal(call(planned(2).with("--rank", 2).words("pretrain_gpt")), 2,
                 {"--rank 2 must be from 0 to --world-size 2 - 1"});
  expect_refusal(call(planned(2).without("--lr").words("pretrain_gpt")), 2, {"--lr"});
  const std::vector<std::string> words = base().with("--dry-run").words("pretrain_gpt");
  expect_refusal(
      run_program({.words = words,
                   .environment = {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}}}),
      2, {"--dry-run is one process, but the launcher started 2"});
  // Others need the launcher as before.
  expect_refusal(call(base().with("--world-size", 2).words("pretrain_gpt")), 2,
                 {"--world-size 2 needs other processes"});
}

TEST(DryRun, Llama405BOnSixteenThousandRanks) {
  std::int64_t resident_kb = 0;
  const auto begin = std::chrono::steady_clock::now();
  const ProgramResult result = run_program(
      {.words = llama_405b().words("pretrain_gpt"), .observe = [&](const RunningProgram& program) {
         resident_kb = std::max(resident_kb, process_status(program.pid, "VmHWM"));
       }});
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  ASSERT_TRUE(result.ok()) << result.describe();
  std::cout << "planned in " << seconds.count() << " s, " << resident_kb / 1024 << " MiB resident\n"
            << result.out;
  // 126 layers of 16384 x (16384 + 2 x 1024) + 16384^2 + 3 x 16384 x 53248 + 2 x 16384, two
  // vocabularies of 128256 and the final norm.
  EXPECT_EQ(count(result.out, "405,853,388,800 parameters"), 1U) << result.out;
  EXPECT_LT(resident_kb, 1024 * 1024);
}

}  // namespace pentatron::functional
