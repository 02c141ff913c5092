// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include "pentatron/comm/launch.h"
#include "tests/functional/tiny_run.h"

// The same loss over processes, started by `pentatron launch` or by torchrun's variables.
namespace pentatron::functional {
namespace {

constexpr double kFp32 = 1e-5;
constexpr double kFp64 = 1e-12;

Options model() { return base().with("--num-attention-heads", 4).with("--train-iters", 4); }

Options grid() {
  return model().with("--tensor-model-parallel-size", 2).with("--pipeline-model-parallel-size", 2);
}

TinyRun launch(int ranks, const Options& options) {
  TinyRun run;
  run.folder = new_folder();
  run.metrics_file = run.folder / "metrics.jsonl";
  std::vector<std::string> words{"launch", "--nproc-per-node", std::to_string(ranks)};
  const std::vector<std::string> command =
      options.with("--metrics-file", run.metrics_file.string()).words("pretrain_gpt");
  words.insert(words.end(), command.begin(), command.end());
  run.program = run_program({.words = words});
  EXPECT_TRUE(run.program.ok()) << run.program.describe();
  return run;
}

Options on_threads(const Options& options, int ranks) {
  return options.with("--distributed-backend", "threads").with("--world-size", ranks);
}

}  // namespace

TEST(Launch, FourRanksTensorAndPipelineParallel) {
  expect_same_losses(launch(4, grid()), train(model()), kFp32);
  const Options exact = grid().with("--fp64").with("--sequence-parallel");
  expect_same_losses(launch(4, exact), train(model().with("--fp64")), kFp64);
}

TEST(Launch, PipelinesOfNeighbours) {
  const Options mapped = model()
                             .with("--pipeline-model-parallel-size", 2)
                             .with("--use-tp-pp-dp-mapping")
                             .with("--use-distributed-optimizer")
                             .with("--fp64");
  expect_same_losses(launch(4, mapped), train(model().with("--fp64")), kFp64);
}

TEST(Launch, TwoRanksDataParallel) {
  const TinyRun plain = launch(2, model());
  expect_same_losses(plain, train(model()), kFp32);
  // One rank logs: one log line a step.
  EXPECT_EQ(plain.iteration_lines().size(), 4U) << plain.program.out;
  const Options exact = model().with("--fp64").with("--use-distributed-optimizer");
  expect_same_losses(launch(2, exact), train(model().with("--fp64")), kFp64);
}

TEST(Launch, ThreadsGiveTheSame) {
  expect_same_losses(train(on_threads(grid(), 4)), train(model()), kFp32);
  const Options exact = model().with("--fp64");
  expect_same_losses(train(on_threads(grid().with("--fp64"), 4)), train(exact), kFp64);
  expect_same_losses(train(on_threads(exact, 2)), train(exact), kFp64);
}

TEST(Launch, VariablesOfTorchrun) {
  const std::string port = std::to_string(comm::free_port());
  std::vector<TinyRun> runs(2);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      ProgramRequest request;
      request.environment = {{"RANK", std::to_string(rank)},       {"WORLD_SIZE", "2"},
                             {"LOCAL_RANK", std::to_string(rank)}, {"LOCAL_WORLD_SIZE", "2"},
                             {"MASTER_ADDR", "127.0.0.1"},         {"MASTER_PORT", port}};
      runs[static_cast<std::size_t>(rank)] = try_train(model(), request);
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const TinyRun& run : runs) EXPECT_TRUE(run.program.ok()) << run.program.describe();
  expect_same_losses(runs[1], train(model()), kFp32);  // the last rank writes the metrics
  EXPECT_TRUE(runs[0].losses().empty());
}

TEST(Launch, ResumesFromProcessesOnThreads) {
  const std::filesystem::path folder = new_folder();
  const TinyRun first = launch(2, saving(model().with("--exit-interval", 2), folder));
  EXPECT_EQ(saved_iterations(folder), (std::vector<int>{2}));
  const TinyRun second = train(on_threads(model(), 2).with("--load", folder.string()));
  const std::vector<double> whole = train(model()).losses();
  ASSERT_EQ(second.losses().size(), 2U);
  EXPECT_NEAR(second.last_loss(), whole.at(3), kFp32 * whole.at(3));
}

TEST(Launch, PassesTheExitCodeOn) {
  const std::vector<std::string> bad = model().with("--num-layers", 3).words("pretrain_gpt");
  std::vector<std::string> words{"launch", "--nproc-per-node", "2"};
  words.insert(words.end(), bad.begin(), bad.end());
  words.insert(words.end(), {"--pipeline-model-parallel-size", "2"});
  expect_refusal(call(words), 2, {"--num-layers 3", "--pipeline-model-parallel-size 2"});
  expect_refusal(call({"launch", "--nproc-per-node", "2"}), 2, {"no command"});
  expect_refusal(call({"launch", "/no/such/program"}), 2, {"/no/such/program"});
}

namespace {
// `pentatron launch --nproc-per-node 2 pretrain_gpt ...`
ProgramResult on_two_ranks(const Options& options, std::vector<std::string> more = {}) {
  std::vector<std::string> words{"launch", "--nproc-per-node", "2"};
  const std::vector<std::string> command = options.words("pretrain_gpt");
  words.insert(words.end(), command.begin(), command.end());
  words.insert(words.end(), more.begin(), more.end());
  return call(words);
}
}  // namespace

// What every rank meets is told once, with the ranks that met it, and nothing is quoted again.
TEST(Launch, AnErrorOfAllRanksIsToldOnce) {
  const ProgramResult unknown = on_two_ranks(model(), {"--num-layer", "3"});
  EXPECT_EQ(unknown.exit_code, kExitConfig) << unknown.describe();
  EXPECT_EQ(count(unknown.err, "did you mean --num-layers?"), 1U) << unknown.err;
  EXPECT_EQ(count(unknown.err, "error: ["), 1U) << unknown.err;
  EXPECT_NE(unknown.err.find("rank"), std::string::npos) << unknown.err;
  // A file that is not there: one rank reads first, what the others hear of it adds nothing.
  const std::filesystem::path none = new_folder() / "none";
  const ProgramResult file =
      on_two_ranks(model().without("--mock-data").with("--data-path", none.string()));
  EXPECT_EQ(file.exit_code, kExitIo) << file.describe();
  EXPECT_EQ(count(file.err, "cannot open " + none.string()), 1U) << file.err;
  const ProgramResult checkpoint =
      on_two_ranks(model().with("--load", none.string()).with("--exit-on-missing-checkpoint"));
  EXPECT_EQ(checkpoint.exit_code, kExitCheckpoint) << checkpoint.describe();
  EXPECT_EQ(count(checkpoint.err, "no checkpoint there"), 1U) << checkpoint.err;
  const ProgramResult grid = on_two_ranks(model(), {"--tensor-model-parallel-size", "4"});
  EXPECT_EQ(grid.exit_code, kExitConfig) << grid.describe();
  EXPECT_EQ(count(grid.err, "error:"), 1U) << grid.err;
}

TEST(Launch, ReportsOfAllRanksAreToldOnce) {
  const ProgramResult good = on_two_ranks(model(), {"--check-options"});
  EXPECT_EQ(good.exit_code, 0) << good.describe();
  EXPECT_EQ(count(good.out, "run         4 steps"), 1U) << good.out;
  const ProgramResult bad = on_two_ranks(model(), {"--num-layer", "3", "--check-options"});
  EXPECT_EQ(bad.exit_code, kExitConfig) << bad.describe();
  EXPECT_EQ(count(bad.out + bad.err, "did you mean --num-layers?"), 1U) << bad.describe();
  // A script that goes on behind a failure is not held up, and its failure is not held back.
  const std::string program = std::getenv("PENTATRON_BIN");
  const ProgramResult script = call(
      {"launch", "--nproc-per-node", "1", "sh", "-c",
       program + " pretrain_gpt --nonsense; " + program + " checkpoint inspect /nowhere; true"});
  EXPECT_EQ(script.exit_code, 0) << script.describe();
  EXPECT_EQ(count(script.err, "error: "), 2U) << script.err;
}

}  // namespace pentatron::functional
