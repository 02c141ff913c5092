// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <signal.h>

#include <cmath>

#include "tests/functional/tiny_run.h"

// Each test fails when the program ignores the option that it is named after.
namespace pentatron::functional {
namespace {

using Numbers = std::vector<double>;

std::vector<int> iterations(const TinyRun& run, const std::string& kind) {
  const Numbers numbers = run.series(kind, "iteration");
  return {numbers.begin(), numbers.end()};
}

// The number that follows a name in a log line.
double number_after(const std::string& line, const std::string& name) {
  const std::size_t at = line.find(name);
  EXPECT_NE(at, std::string::npos) << name << " is missing in: " << line;
  return at == std::string::npos ? 0 : std::stod(line.substr(at + name.size()));
}

}  // namespace

TEST(Options, Precision) {
  const auto dtype = [](const Options& options) {
    const std::filesystem::path folder = new_folder();
    const TinyRun run = train(saving(options.with("--train-iters", 1), folder));
    const nlohmann::json tensors = manifest(folder, 1).value("tensors", nlohmann::json::array());
    return tensors.empty() ? "" : tensors[0].value("dtype", "");
  };
  EXPECT_EQ(dtype(base()), "F32");
  EXPECT_EQ(dtype(base().with("--fp64")), "F64");
  EXPECT_EQ(dtype(base().with("--bf16")), "F32");  // the weights that are updated
  const double exact = train(base().with("--fp64")).first_loss();
  const double single = train(base()).first_loss();
  const double half = train(base().with("--bf16")).first_loss();
  EXPECT_NE(single, exact);
  EXPECT_NEAR(single, exact, 1e-5 * exact);
  EXPECT_NEAR(half, exact, 2e-2 * exact);
  EXPECT_GT(std::abs(half - exact), 1e-5 * exact);
}

TEST(Options, MicroBatchSize) {
  const Options free = base().without("--global-batch-size");
  EXPECT_EQ(train(free).series("train", "consumed_samples"), (Numbers{2, 4, 6}));
  EXPECT_EQ(train(free.with("--micro-batch-size", 3)).series("train", "consumed_samples"),
            (Numbers{3, 6, 9}));
  // The loss does not depend on how a batch is cut; what does not divide is refused.
  for (const int size : {1, 4}) {
    expect_same_losses(train(base().with("--micro-batch-size", size)), train(base()), 1e-5);
  }
  expect_refusal(try_train(base().with("--micro-batch-size", 3)).program, 2,
                 {"--global-batch-size 4", "--micro-batch-size 3"});
}

TEST(Options, GlobalBatchSize) {
  const TinyRun run = train(base().with("--global-batch-size", 6));
  EXPECT_EQ(run.series("train", "consumed_samples"), (Numbers{6, 12, 18}));
  EXPECT_EQ(run.series("train", "valid_tokens"), (Numbers{96, 96, 96}));
  EXPECT_EQ(train(base()).series("train", "valid_tokens"), (Numbers{64, 64, 64}));
}

// Megatron's mean of micro-batches' means: another gradient where micro-batches count unlike
// numbers of tokens, and the loss that is told stays one over tokens.
TEST(Options, LossMean) {
  const Options uneven = base().with("--eod-mask-loss").with("--micro-batch-size", 1);
  const Options means = uneven.with("--loss-mean", "micro-batches");
  const TinyRun tokens = train(uneven);
  const TinyRun averaged = train(means);
  EXPECT_NEAR(averaged.first_loss(), tokens.first_loss(), 1e-6 * tokens.first_loss());  // fp32
  EXPECT_NE(averaged.series("train", "grad_norm"), tokens.series("train", "grad_norm"));
  EXPECT_NE(averaged.last_loss(), tokens.last_loss());
  // One micro-batch has one mean.
  const Options whole = uneven.with("--micro-batch-size", 4);
  expect_same_losses(train(whole.with("--loss-mean", "micro-batches")), train(whole), 1e-5);
  expect_same_losses(train(uneven.with("--calculate-per-token-loss")), tokens, 0);
  // Data-parallel ranks have micro-batches of their own, pipeline and tensor ranks share them.
  const Options ranks =
      means.with("--distributed-backend", "threads").with("--world-size", 4).with("--fp64");
  expect_same_losses(train(ranks.with("--pipeline-model-parallel-size", 2)),
                     train(means.with("--fp64")), 1e-12);
  expect_refusal(try_train(base().with("--loss-mean", "samples")).program, 2,
                 {"--loss-mean", "samples", "micro-batches"});
}

// Exit codes of Megatron's rerun machine; one machine stands for others where the record says so.
TEST(Options, ErrorInjection) {
  const std::filesystem::path folder = new_folder();
  const Options injecting = saving(base().with("--train-iters", 50), folder)
                                .with("--save-interval", 1)
                                .with("--error-injection-rate", 1);
  // The first step is never taken; of the second nothing is kept.
  const TinyRun transient = try_train(injecting.with("--exit-interval", 20));
  EXPECT_EQ(transient.program.exit_code, 17) << transient.program.describe();
  EXPECT_EQ(count(transient.program.err + transient.program.out, "Possible transient error!"), 1U);
  EXPECT_EQ(saved_iterations(folder), (std::vector<int>{1}));
  EXPECT_FALSE(std::filesystem::exists(folder / "rerun.json"));

  const Options again = resuming(base().with("--train-iters", 50), folder)
                            .with("--exit-interval", 4)
                            .with("--error-injection-rate", 1);
  const TinyRun persistent = try_train(again.with("--error-injection-type", "persistent_error"));
  EXPECT_EQ(persistent.program.exit_code, 16) << persistent.program.describe();
  EXPECT_EQ(saved_iterations(folder), (std::vector<int>{1, 2}));
  nlohmann::json record = nlohmann::json::parse(read_file(folder / "rerun.json"));
  EXPECT_EQ(record.at("iteration"), 3);
  const Options resumed = again.without("--error-injection-rate");
  const TinyRun same = try_train(resumed);
  EXPECT_EQ(same.program.exit_code, 16) << same.program.describe();
  record["devices"] = {"another-machine cpu"};
  write_file(folder / "rerun.json", record.dump());
  const TinyRun elsewhere = try_train(resumed);
  EXPECT_EQ(elsewhere.program.exit_code, 17) << elsewhere.program.describe();
  EXPECT_EQ(count(elsewhere.program.err + elsewhere.program.out, "Possible persistent error!"), 1U);
  EXPECT_FALSE(std::filesystem::exists(folder / "rerun.json"));
  // Then the run goes on, as if nothing had been.
  const Numbers whole = train(base().with("--train-iters", 50).with("--exit-interval", 4)).losses();
  EXPECT_EQ(train(resumed).losses(), (Numbers{whole.at(2), whole.at(3)}));
  expect_no_effect(try_train(base().with("--error-injection-type", "correct_result")).program,
                   "--error-injection-type");
}

TEST(Options, RerunMode) {
  // Weights beyond any number after the first step: the second comes to nothing, twice.
  const std::filesystem::path folder = new_folder();
  const Options wild = saving(base().with("--lr", "1e30"), folder);
  const TinyRun rejected = try_train(wild);
  EXPECT_EQ(rejected.program.exit_code, 16) << rejected.program.describe();
  EXPECT_EQ(count(rejected.program.err + rejected.program.out, "unexpected result is reproducible"),
            1U);
  EXPECT_EQ(saved_iterations(folder), (std::vector<int>{1}));
  EXPECT_TRUE(std::filesystem::exists(folder / "rerun.json"));
  expect_refusal(
      try_train(saving(base().with("--lr", "1e30"), new_folder()).with("--rerun-mode", "disabled"))
          .program,
      3, {"iteration 2", "no update was made"});
  const TinyRun twice = train(base().with("--rerun-mode", "report_stats"));
  EXPECT_EQ(count(twice.program.out, "determinism of 3 steps run twice: 0 with another loss"), 1U)
      << twice.program.out;
  EXPECT_EQ(twice.losses(), train(base()).losses());
  expect_no_effect(
      try_train(base().with("--rerun-mode", "disabled").with("--error-injection-rate", 1)).program,
      "--error-injection-rate");
}

TEST(Options, ActivationOffload) {
  const Options offload =
      base()
          .with("--fine-grained-activation-offloading")
          .with("--offload-modules", std::vector<std::string>{"attn_norm", "core_attn", "mlp_norm"})
          .with("--min-offloaded-tensor-size", 64);
  EXPECT_EQ(train(offload).losses(), train(base()).losses());
  EXPECT_EQ(train(offload.with("--activation-offload-fraction", "0.5")).losses(),
            train(base()).losses());
  // The plan counts what waits on the host: nothing where all is too small.
  const auto on_host = [](const Options& options) {
    const std::filesystem::path file = new_folder() / "plan.json";
    const ProgramResult result =
        call(options.with("--dry-run").with("--dry-run-json", file.string()).words("pretrain_gpt"));
    EXPECT_TRUE(result.ok()) << result.describe();
    const auto plan = nlohmann::json::parse(read_file(file));
    return plan.at("rank").at("memory").at("on_host").get<std::int64_t>();
  };
  const std::int64_t all = on_host(offload);
  EXPECT_GT(all, 0);
  EXPECT_LT(on_host(offload.with("--activation-offload-fraction", "0.5")), all);
  EXPECT_EQ(on_host(offload.without("--min-offloaded-tensor-size")), 0);
  expect_refusal(try_train(offload.with("--offload-modules", "mlp")).program, 2,
                 {"--offload-modules", "'mlp'", "attn_proj"});
  expect_refusal(try_train(offload.without("--offload-modules")).program, 2,
                 {"--fine-grained-activation-offloading needs --offload-modules"});
  expect_no_effect(try_train(base().with("--offload-modules", "core_attn")).program,
                   "--offload-modules");
}

TEST(Options, TrainIters) {
  EXPECT_EQ(train(base()).losses().size(), 3U);
  EXPECT_EQ(train(base().with("--train-iters", 5)).losses().size(), 5U);
}

TEST(Options, TrainSamples) {
  const TinyRun run = train(base().without("--train-iters").with("--train-samples", 20));
  EXPECT_EQ(run.series("train", "consumed_samples"), (Numbers{4, 8, 12, 16, 20}));
  // A rest that makes no whole batch is left.
  const TinyRun rest = train(base().without("--train-iters").with("--train-samples", 11));
  EXPECT_EQ(rest.series("train", "consumed_samples"), (Numbers{4, 8}));
  // With stages of batch sizes the last step may go beyond it, as in Megatron (N7).
  const TinyRun beyond = train(base()
                                   .without("--train-iters")
                                   .without("--global-batch-size")
                                   .with("--train-samples", 11)
                                   .with("--step-batch-size-schedule", "0:4 0.128K:8"));
  EXPECT_EQ(beyond.series("train", "consumed_samples"), (Numbers{4, 8, 16}));
}

TEST(Options, EvalInterval) {
  const Options evaluating = base().with("--eval-iters", 1).with("--train-iters", 5);
  EXPECT_EQ(iterations(train(evaluating), "validation"), (std::vector<int>{5}));
  const TinyRun often = train(evaluating.with("--eval-interval", 2));
  EXPECT_EQ(iterations(often, "validation"), (std::vector<int>{2, 4, 5}));
  EXPECT_EQ(count(often.program.out, " validation loss at iteration 2 |"), 1U);
  // Evaluation changes nothing.
  EXPECT_EQ(often.losses(), train(base().with("--train-iters", 5)).losses());
}

TEST(Options, EvalIters) {
  const auto tokens = [](int iters) {
    return train(base().with("--eval-iters", iters)).series("validation", "valid_tokens");
  };
  EXPECT_EQ(tokens(0), Numbers{});
  EXPECT_EQ(tokens(1), Numbers{64});
  EXPECT_EQ(tokens(3), Numbers{192});
}

TEST(Options, SkipTrain) {
  const TinyRun run = train(base().with("--skip-train").with("--eval-iters", 1));
  EXPECT_TRUE(run.losses().empty());
  EXPECT_EQ(iterations(run, "validation"), (std::vector<int>{0}));
}

TEST(Options, ExitInterval) {
  const std::filesystem::path folder = new_folder();
  const TinyRun run =
      train(saving(base().with("--train-iters", 9).with("--exit-interval", 4), folder));
  EXPECT_EQ(run.losses().size(), 4U);
  EXPECT_EQ(count(run.program.out, "[exiting program at iteration 4] datetime:"), 1U);
  EXPECT_EQ(saved_iterations(folder), (std::vector<int>{4}));
}

namespace {
// Runs long enough to be sent `signal` after its third step.
TinyRun signalled(const Options& options, int signal) {
  bool sent = false;
  return try_train(options.with("--train-iters", 100000),
                   {.observe = [&sent, signal](const RunningProgram& program) {
                     if (sent || program.out.find("] iteration        3/") == std::string::npos) {
                       return;
                     }
                     sent = ::kill(program.pid, signal) == 0;
                   }});
}
}  // namespace

TEST(Options, ExitSignal) {
  const TinyRun plain = signalled(base(), SIGTERM);
  EXPECT_EQ(plain.program.signal, SIGTERM) << plain.program.describe();
  const std::filesystem::path folder = new_folder();
  const Options handling = base().with("--exit-signal-handler");
  const TinyRun saved = signalled(saving(handling, folder), SIGTERM);
  EXPECT_TRUE(saved.program.ok()) << saved.program.describe();
  EXPECT_EQ(count(saved.program.out, "[exiting program after receiving SIGTERM.] datetime:"), 1U);
  EXPECT_EQ(saved_iterations(folder), (std::vector<int>{static_cast<int>(saved.losses().size())}));
  // The spelling for the loop alone; the loader's threads never take a signal.
  const Options parts = base().with("--exit-signal-handler-for-training");
  const TinyRun same = signalled(parts.with("--exit-signal-handler-for-dataloader"), SIGTERM);
  EXPECT_TRUE(same.program.ok()) << same.program.describe();
  const TinyRun other = signalled(handling.with("--exit-signal", "SIGUSR1"), SIGUSR1);
  EXPECT_TRUE(other.program.ok()) << other.program.describe();
  const TinyRun wrong = signalled(handling.with("--exit-signal", "SIGUSR1"), SIGTERM);
  EXPECT_EQ(wrong.program.signal, SIGTERM) << wrong.program.describe();
}

TEST(Options, LogInterval) {
  const Options six = base().with("--train-iters", 6);
  EXPECT_EQ(train(six).iteration_lines().size(), 6U);
  const TinyRun run = train(six.with("--log-interval", 3));
  const std::vector<std::string> lines = run.iteration_lines();
  ASSERT_EQ(lines.size(), 3U);  // the first step, 3 and 6
  EXPECT_NE(lines[0].find("] iteration        1/       6 |"), std::string::npos) << lines[0];
  EXPECT_NE(lines[2].find("] iteration        6/       6 |"), std::string::npos) << lines[2];
  // The mean of the interval's losses, to the digits shown.
  const Numbers losses = run.losses();
  ASSERT_EQ(losses.size(), 6U);
  EXPECT_NEAR(number_after(lines[2], "lm loss:"), (losses[3] + losses[4] + losses[5]) / 3, 1e-5);
  EXPECT_NEAR(number_after(lines[1], "lm loss:"), (losses[0] + losses[1] + losses[2]) / 3, 1e-5);
}

TEST(Options, LogThroughput) {
  EXPECT_EQ(count(train(base()).program.out, "throughput per GPU (TFLOP/s/GPU):"), 0U);
  EXPECT_EQ(count(train(base().with("--log-throughput")).program.out,
                  "| throughput per GPU (TFLOP/s/GPU): 0."),
            3U);
}

TEST(Options, LogParamsNorm) {
  EXPECT_EQ(count(train(base()).program.out, "params norm:"), 0U);
  const std::vector<std::string> lines = train(base().with("--log-params-norm")).iteration_lines();
  ASSERT_EQ(lines.size(), 3U);
  // About sqrt(sum of std^2): 64 x 16 + 16 x 16 + 2 x (3 + 4) x 256 values of 0.5, 2 x (1 + 4) x
  // 256 of 0.5 / sqrt(4), 5 norms of 16 ones.
  const double expected = std::sqrt((1024 + 256 + 14 * 256) * 0.25 + 10 * 256 * 0.0625 + 80);
  EXPECT_NEAR(number_after(lines[0], "params norm:"), expected, 0.05 * expected);
}

TEST(Options, MetricsFile) {
  const std::filesystem::path file = new_folder() / "deep" / "m.jsonl";
  const TinyRun run = train(base().with("--metrics-file", file.string()));
  EXPECT_EQ(run.losses(), train(base()).losses());
  // What the run is, then its steps.
  EXPECT_EQ(count(read_file(file), "\n"), 4U);
  EXPECT_EQ(run.series("run", "train_iters"), std::vector<double>{3});
  EXPECT_EQ(count(read_file(file), "\"options\":{"), 1U) << read_file(file);
  EXPECT_EQ(run.series("train", "consumed_tokens"), (std::vector<double>{64, 128, 192}));
  EXPECT_EQ(run.series("train", "time").size(), 3U);
  // Full precision: more digits than the log line's.
  const std::vector<std::string> lines = run.iteration_lines();
  ASSERT_EQ(lines.size(), 3U);
  const double rounded = number_after(lines[0], "lm loss:");
  EXPECT_NE(run.first_loss(), rounded);
  EXPECT_NEAR(run.first_loss(), rounded, 1e-5);
}

}  // namespace pentatron::functional
