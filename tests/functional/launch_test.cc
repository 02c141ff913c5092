// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

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

}  // namespace pentatron::functional
