// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "tests/functional/tiny_run.h"

// Each test fails when the program ignores the option that it is named after: schedules, loss
// scaling, batch sizes, evaluation and exits of the training loop.
namespace pentatron::functional {
namespace {

using Numbers = std::vector<double>;
using Words = std::vector<std::string>;

std::vector<int> iterations(const TinyRun& run, const std::string& kind) {
  const Numbers numbers = run.series(kind, "iteration");
  return {numbers.begin(), numbers.end()};
}

Options steps(int count) { return base().with("--train-iters", count); }

}  // namespace

TEST(Options, LrWsdDecay) {
  const Options wsd = steps(6).with("--lr-decay-style", "WSD").with("--lr-wsd-decay-iters", 4);
  const auto rate = [](double x) { return kLr * (2 * std::pow(0.5, x) - 1); };
  expect_near(rates(wsd), {kLr, kLr, kLr, rate(0.25), rate(0.5), rate(0.75)});
  const auto style = [&](const char* name) {
    return rates(wsd.with("--lr-wsd-decay-style", name)).at(4);
  };
  EXPECT_NEAR(style("exponential"), rate(0.5), 1e-12);
  EXPECT_NEAR(style("linear"), kLr / 2, 1e-12);
  EXPECT_NEAR(style("cosine"), kLr / 2, 1e-12);
  EXPECT_NEAR(style("minus_sqrt"), kLr * (1 - std::sqrt(0.5)), 1e-12);
  EXPECT_NEAR(rates(wsd.with("--lr-wsd-decay-style", "cosine")).at(3),
              kLr * 0.5 * (1 + std::cos(std::numbers::pi / 4)), 1e-12);
  const Options in_samples = wsd.without("--train-iters")
                                 .without("--lr-wsd-decay-iters")
                                 .with("--train-samples", 24)
                                 .with("--lr-wsd-decay-samples", 8)
                                 .with("--lr-wsd-decay-style", "linear");
  expect_near(rates(in_samples), {kLr, kLr, kLr, kLr, kLr, kLr / 2});
  expect_refusal(try_train(wsd.without("--lr-wsd-decay-iters")).program, 2,
                 {"WSD needs --lr-wsd-decay-iters"});
  expect_no_effect(try_train(wsd.with("--lr-decay-style", "linear")).program,
                   "--lr-wsd-decay-iters");
}

TEST(Options, DecoupledLr) {
  const double usual = train(base()).last_loss();
  EXPECT_EQ(train(base().with("--decoupled-lr", "1e-2")).last_loss(), usual);
  EXPECT_NE(train(base().with("--decoupled-lr", "1e-3")).last_loss(), usual);
  const Options linear = base().with("--lr-decay-style", "linear").with("--decoupled-lr", "2e-2");
  EXPECT_NE(train(linear.with("--decoupled-min-lr", "1e-2")).last_loss(),
            train(linear).last_loss());
  expect_refusal(try_train(linear.with("--decoupled-min-lr", "3e-2")).program, 2,
                 {"--decoupled-min-lr 0.03", "--decoupled-lr 0.02"});
}

TEST(Options, WeightDecaySchedule) {
  const Options rising = steps(4)
                             .with("--weight-decay-incr-style", "linear")
                             .with("--start-weight-decay", "0.1")
                             .with("--end-weight-decay", "0.5");
  expect_near(train(rising).series("train", "weight_decay"), {0.1, 0.2, 0.3, 0.4});
  const Numbers cosine =
      train(rising.with("--weight-decay-incr-style", "cosine")).series("train", "weight_decay");
  expect_near(cosine, {0.1, 0.1 + 0.4 * 0.5 * (1 - std::sqrt(0.5)), 0.3,
                       0.1 + 0.4 * 0.5 * (1 + std::sqrt(0.5))});
  EXPECT_NE(train(rising.with("--end-weight-decay", "5")).last_loss(), train(rising).last_loss());
  expect_refusal(try_train(rising.without("--weight-decay-incr-style")).program, 2,
                 {"--start-weight-decay and --end-weight-decay need"});
  expect_refusal(try_train(rising.without("--end-weight-decay")).program, 2,
                 {"needs --start-weight-decay and --end-weight-decay"});
  expect_no_effect(try_train(rising.with("--weight-decay", "0.1")).program, "--weight-decay");
}

TEST(Options, Fp16) {
  const TinyRun run = train(base().with("--fp16").with("--loss-scale", "256"));
  const TinyRun single = train(base());
  const TinyRun bfloat = train(base().with("--bf16"));
  EXPECT_NE(run.first_loss(), single.first_loss());
  EXPECT_NE(run.first_loss(), bfloat.first_loss());
  EXPECT_NEAR(run.first_loss(), single.first_loss(), 2e-3 * single.first_loss());
  EXPECT_EQ(count(run.program.out, "| loss scale: 256.0 |"), 3U);
  expect_refusal(try_train(base().with("--fp16").with("--bf16")).program, 2,
                 {"--bf16 and --fp16 exclude each other"});
}

TEST(Options, LossScale) {
  const auto scales = [](const Options& options) {
    return train(options.with("--fp16")).series("train", "applied_loss_scale");
  };
  EXPECT_EQ(scales(base()).front(), 4294967296.0);
  EXPECT_EQ(scales(base().with("--loss-scale", "8")), (Numbers{8, 8, 8}));
  const Options dynamic = steps(6).with("--initial-loss-scale", "64");
  EXPECT_EQ(scales(dynamic), Numbers(6, 64.0));
  EXPECT_EQ(scales(dynamic.with("--loss-scale-window", "2")),
            (Numbers{64, 64, 128, 128, 256, 256}));
  // Overflows: the first is forgiven by default.
  const double huge = std::exp2(60);
  const Options bad = steps(4).with("--initial-loss-scale", "1152921504606846976");
  EXPECT_EQ(scales(bad), (Numbers{huge, huge, huge / 2, huge / 4}));
  EXPECT_EQ(scales(bad.with("--hysteresis", 1)), (Numbers{huge, huge / 2, huge / 4, huge / 8}));
  EXPECT_EQ(scales(bad.with("--hysteresis", 1).with("--min-loss-scale", "576460752303423488")),
            (Numbers{huge, huge / 2, huge / 2, huge / 2}));
  // A step that overflows is left out.
  EXPECT_EQ(train(bad.with("--fp16")).series("train", "skipped"), (Numbers{1, 1, 1, 1}));
  expect_no_effect(try_train(base().with("--hysteresis", 3)).program, "--hysteresis");
}

TEST(Options, StepBatchSizeSchedule) {
  // Samples of 16 tokens: 4 until 8 samples are consumed, then 8.
  const Options growing =
      steps(4).without("--global-batch-size").with("--step-batch-size-schedule", "0:4 0.128K:8");
  const std::filesystem::path folder = new_folder();
  const TinyRun run = train(saving(growing, folder));
  EXPECT_EQ(run.series("train", "global_batch_size"), (Numbers{4, 4, 8, 8}));
  EXPECT_EQ(run.series("train", "consumed_samples"), (Numbers{4, 8, 16, 24}));
  EXPECT_EQ(count(run.program.out, "global batch size:     8 |"), 2U);
  EXPECT_EQ(saved_iterations(folder), (std::vector<int>{2, 4})) << "one at the change";
  expect_refusal(try_train(growing.with("--step-batch-size-schedule", "0:4 128:7")).program, 2,
                 {"batch size 7 does not divide"});
  expect_refusal(try_train(growing.with("--step-batch-size-schedule", "5:4")).program, 2,
                 {"must begin with 0:samples"});
  expect_refusal(try_train(growing.with("--global-batch-size", 4)).program, 2,
                 {"--global-batch-size 4", "which ends with 8"});
}

// Megatron's rule: steps take the largest multiple of micro-batch size x data-parallel size, and
// consumed samples are counted in those; lengths in iterations in what was asked for.
TEST(Options, DecreaseBatchSizeIfNeeded) {
  const Options six = steps(6)
                          .with("--global-batch-size", 6)
                          .with("--micro-batch-size", 1)
                          .with("--lr-decay-style", "linear");
  const Options lowered = six.with("--decrease-batch-size-if-needed");
  EXPECT_EQ(train(lowered).losses(), train(six).losses()) << "nothing to lower";
  const Options on_four = lowered.with("--world-size", 4).with("--distributed-backend", "threads");
  expect_refusal(try_train(on_four.without("--decrease-batch-size-if-needed")).program, 2,
                 {"--global-batch-size 6", "--decrease-batch-size-if-needed"});
  expect_refusal(try_train(on_four.with("--global-batch-size", 3)).program, 2,
                 {"--global-batch-size 3", "cannot be lowered"});
  const std::filesystem::path folder = new_folder();
  const TinyRun four = train(saving(on_four.with("--exit-interval", 3), folder));
  EXPECT_EQ(four.series("train", "global_batch_size"), (Numbers{4, 4, 4}));
  EXPECT_EQ(four.series("train", "consumed_samples"), (Numbers{4, 8, 12}));
  EXPECT_NE(four.program.out.find("batches are lowered from 6 to 4 samples"), std::string::npos);
  // The rates are those of a run of six samples a step that has seen as many.
  expect_near(four.series("train", "applied_learning_rate"),
              {kLr, kLr * (1 - 4.0 / 36), kLr * (1 - 8.0 / 36)});
  // One rank, batches of four: the same steps.
  const Options small = six.with("--global-batch-size", 4).with("--train-iters", 9);
  expect_same_losses(four, train(small.with("--exit-interval", 3)), 1e-6);
  // Ranks that divide six: six again, from the sample where the four ranks were, on the same order.
  const TinyRun two = train(
      resuming(lowered.with("--world-size", 2).with("--distributed-backend", "threads"), folder));
  EXPECT_EQ(two.series("train", "global_batch_size"), (Numbers{6, 6, 6}));
  EXPECT_EQ(two.series("train", "consumed_samples"), (Numbers{18, 24, 30}));
  EXPECT_NEAR(two.series("train", "applied_learning_rate").at(0), kLr * (1 - 12.0 / 36), 1e-12);
  // With stages, which Megatron refuses: each is lowered.
  const TinyRun growing = train(on_four.without("--global-batch-size")
                                    .with("--step-batch-size-schedule", "0:5 0.128K:9")
                                    .with("--train-iters", 3));
  EXPECT_EQ(growing.series("train", "global_batch_size"), (Numbers{4, 4, 8}));
}

TEST(Options, StartEvalAtIter) {
  const Options evaluating =
      steps(6).with("--eval-iters", 1).with("--eval-interval", 2).with("--start-eval-at-iter", 3);
  EXPECT_EQ(iterations(train(evaluating), "validation"), (std::vector<int>{4, 6, 6}));
  EXPECT_EQ(iterations(train(evaluating.without("--start-eval-at-iter")), "validation"),
            (std::vector<int>{2, 4, 6, 6}));
}

TEST(Options, EvalBatchSizes) {
  const Options evaluating = base().with("--eval-iters", 1);
  const auto tokens = [](const TinyRun& run) { return run.series("validation", "valid_tokens"); };
  const TinyRun usual = train(evaluating);
  EXPECT_EQ(tokens(usual), (Numbers{64}));
  const TinyRun larger = train(evaluating.with("--eval-global-batch-size", 6));
  EXPECT_EQ(tokens(larger), (Numbers{96}));
  EXPECT_EQ(larger.losses(), usual.losses());
  // How a batch is cut shows in what divides.
  const Options six = evaluating.with("--eval-global-batch-size", 6);
  EXPECT_EQ(tokens(train(six.with("--eval-micro-batch-size", 3))), (Numbers{96}));
  expect_refusal(try_train(six.with("--eval-micro-batch-size", 4)).program, 2,
                 {"--eval-global-batch-size 6", "--eval-micro-batch-size 4"});
}

TEST(Options, FullValidation) {
  const Options evaluating = base().with("--eval-iters", 1).with("--split", "40,40,20");
  const TinyRun part = train(evaluating);
  const TinyRun whole = train(evaluating.with("--full-validation"));
  EXPECT_EQ(part.series("validation", "valid_tokens"), (Numbers{64}));
  EXPECT_GT(whole.series("validation", "valid_tokens").at(0), 64);
  EXPECT_EQ(part.series("test", "lm_loss"), whole.series("test", "lm_loss"));
  expect_refusal(
      try_train(evaluating.with("--full-validation").with("--eval-global-batch-size", 1000))
          .program,
      2, {"less than one batch of 1000", "--eval-global-batch-size", corpus(0)});
}

TEST(Options, MultipleValidationSets) {
  const Options by_path = base()
                              .without("--data-path")
                              .without("--split")
                              .with("--eval-iters", 1)
                              .with("--train-data-path", corpus(0))
                              .with("--valid-data-path", Words{corpus(1), corpus(0)});
  const Options several = by_path.with("--multiple-validation-sets");
  const TinyRun numbered = train(several);
  EXPECT_EQ(count(numbered.program.out, " validation-0 loss at iteration 3 on validation set |"),
            1U);
  EXPECT_EQ(count(numbered.program.out, " validation-1 loss at iteration 3 on validation set |"),
            1U);
  EXPECT_EQ(numbered.series("test", "lm_loss"), Numbers{});
  const TinyRun named = train(several.with("--validation-set-names", Words{"web", "code"})
                                  .with("--test-data-path", corpus(1)));
  EXPECT_EQ(named.series("validation-web", "lm_loss"), numbered.series("validation-0", "lm_loss"));
  EXPECT_EQ(named.series("validation-code", "lm_loss"), numbered.series("validation-1", "lm_loss"));
  EXPECT_NE(named.series("validation-web", "lm_loss"), named.series("validation-code", "lm_loss"));
  EXPECT_EQ(named.series("test", "lm_loss").size(), 1U);
  EXPECT_NE(train(several.with("--train-data-path", corpus(1))).losses(), numbered.losses());
  // Without it they are one set.
  EXPECT_FALSE(train(by_path).series("validation", "lm_loss").empty());
  expect_no_effect(try_train(several.with("--split", "1,1,1")).program, "--split");
  expect_refusal(try_train(several.with("--data-path", corpus(0))).program, 2,
                 {"--data-path excludes"});
}

TEST(Options, IterationsToSkip) {
  const TinyRun run = train(steps(4).with("--iterations-to-skip", Words{"1", "2"}));
  EXPECT_EQ(iterations(run, "train"), (std::vector<int>{3, 4}));
  EXPECT_EQ(run.series("train", "consumed_samples"), (Numbers{12, 16}));
  EXPECT_EQ(run.iteration_lines().size(), 2U) << run.program.out;
  EXPECT_EQ(count(run.program.out, "| skipped samples:            8 |"), 2U);
  expect_refusal(try_train(base().with("--iterations-to-skip", Words{"1", "x"})).program, 2,
                 {"--iterations-to-skip", "expected an integer"});
}

TEST(Options, KillSwitchFile) {
  const std::filesystem::path folder = new_folder();
  const std::filesystem::path file = folder / "stop";
  const Options options = base().with("--kill-switch-file", file.string());
  EXPECT_EQ(train(options).losses().size(), 3U);
  write_file(file, "");
  const TinyRun stopped = train(saving(options, folder));
  EXPECT_TRUE(stopped.losses().empty());
  EXPECT_EQ(count(stopped.program.out, "[exiting program because " + file.string() + " exists]"),
            1U);
  EXPECT_TRUE(saved_iterations(folder).empty());
}

TEST(Options, LogNumZerosInGrad) {
  EXPECT_EQ(count(train(base()).program.out, "num zeros:"), 0U);
  EXPECT_EQ(count(train(base().with("--log-num-zeros-in-grad")).program.out, "| num zeros: "), 3U);
}

}  // namespace pentatron::functional
