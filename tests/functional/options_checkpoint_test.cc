// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/functional/tiny_run.h"

// Each test fails when the program ignores the option that it is named after.
namespace pentatron::functional {
namespace {

namespace fs = std::filesystem;
using Iterations = std::vector<int>;

// Two of four steps, saved.
fs::path half_done() {
  static const fs::path kFolder = [] {
    const fs::path made = new_folder();
    const TinyRun run =
        train(saving(base().with("--train-iters", 4).with("--exit-interval", 2), made));
    return made;
  }();
  return kFolder;
}

Options going_on() { return base().with("--train-iters", 4).with("--load", half_done().string()); }

// As a script has them that leaves model and tokenizer to the checkpoint.
Options without_model(const Options& options) {
  Options rest = options;
  for (const char* name :
       {"--num-layers", "--hidden-size", "--num-attention-heads", "--seq-length",
        "--max-position-embeddings", "--hidden-dropout", "--attention-dropout", "--tokenizer-type",
        "--vocab-size", "--make-vocab-size-divisible-by", "--init-method-std"}) {
    rest = rest.without(name);
  }
  return rest;
}

std::vector<int> steps_of(const TinyRun& run) {
  const std::vector<double> numbers = run.series("train", "iteration");
  return {numbers.begin(), numbers.end()};
}

std::vector<double> last_two(const std::vector<double>& values) {
  return values.size() < 2 ? values : std::vector<double>(values.end() - 2, values.end());
}

}  // namespace

TEST(Options, Save) {
  const fs::path folder = new_folder() / "made" / "here";
  const TinyRun run = train(saving(base(), folder));
  EXPECT_EQ(saved_iterations(folder), (Iterations{3}));
  EXPECT_EQ(read_file(folder / "latest_checkpointed_iteration.txt").substr(0, 1), "3");
  EXPECT_EQ(count(run.program.out, "saving checkpoint at iteration       3 to " + folder.string()),
            1U);
  EXPECT_EQ(count(run.program.out, "  successfully saved checkpoint from iteration       3 to"),
            1U);
  const ProgramResult verified = call({"checkpoint", "verify", folder.string()});
  EXPECT_TRUE(verified.ok()) << verified.describe();
  const ProgramResult inspected = call({"checkpoint", "inspect", folder.string()});
  EXPECT_TRUE(inspected.ok()) << inspected.describe();
  EXPECT_GT(count(inspected.out, "embedding.word_embeddings.weight"), 0U) << inspected.out;
}

TEST(Options, Load) {
  const TinyRun resumed = train(going_on());
  const TinyRun whole = train(base().with("--train-iters", 4));
  EXPECT_EQ(steps_of(resumed), (Iterations{3, 4}));
  EXPECT_EQ(resumed.losses(), last_two(whole.losses()));
  EXPECT_EQ(count(resumed.program.out, " loading distributed checkpoint from " +
                                           half_done().string() + " at iteration 2"),
            1U);
}

TEST(Options, SaveInterval) {
  const fs::path folder = new_folder();
  const TinyRun run = train(saving(base().with("--train-iters", 5), folder, 2));
  EXPECT_EQ(saved_iterations(folder), (Iterations{2, 4, 5}));
  const fs::path other = new_folder();
  const TinyRun same = train(base()
                                 .with("--train-iters", 5)
                                 .with("--save", other.string())
                                 .with("--persistent-save-interval", 3));
  EXPECT_EQ(saved_iterations(other), (Iterations{3, 5}));
}

TEST(Options, SaveRetainInterval) {
  const fs::path folder = new_folder();
  const TinyRun run =
      train(saving(base().with("--train-iters", 7).with("--save-retain-interval", 3), folder, 1));
  EXPECT_EQ(saved_iterations(folder), (Iterations{3, 6, 7}));
}

TEST(Options, KeepCheckpoints) {
  const fs::path folder = new_folder();
  const TinyRun run =
      train(saving(base().with("--train-iters", 5).with("--keep-checkpoints", 2), folder, 1));
  EXPECT_EQ(saved_iterations(folder), (Iterations{4, 5}));
  const fs::path all = new_folder();
  const TinyRun kept = train(saving(base().with("--train-iters", 3), all, 1));
  EXPECT_EQ(saved_iterations(all), (Iterations{1, 2, 3}));
}

TEST(Options, CkptStep) {
  const fs::path folder = new_folder();
  const Options four = base().with("--train-iters", 4);
  const TinyRun first = train(saving(four, folder, 1));
  const TinyRun again = train(four.with("--load", folder.string()).with("--ckpt-step", 1));
  EXPECT_EQ(steps_of(again), (Iterations{2, 3, 4}));
  EXPECT_EQ(last_two(again.losses()), last_two(first.losses()));
  expect_refusal(try_train(four.with("--load", folder.string()).with("--ckpt-step", 9)).program, 7,
                 {"9"});
}

TEST(Options, Finetune) {
  const TinyRun tuned = train(going_on().with("--finetune"));
  EXPECT_EQ(steps_of(tuned), (Iterations{1, 2, 3, 4}));
  EXPECT_EQ(tuned.series("train", "consumed_samples"), (std::vector<double>{4, 8, 12, 16}));
  // From the loaded weights, not from new ones.
  EXPECT_NE(tuned.first_loss(), train(base()).first_loss());
  // Other data are accepted.
  const TinyRun other = train(going_on().with("--finetune").with("--data-path", corpus(1)));
  EXPECT_EQ(steps_of(other).size(), 4U);
}

// One command: weights of another run at first, then what it saved itself.
TEST(Options, PretrainedCheckpoint) {
  const fs::path folder = new_folder();
  const Options run = saving(base().with("--train-iters", 4), folder)
                          .with("--load", folder.string())
                          .with("--pretrained-checkpoint", half_done().string());
  const TinyRun tuned = train(going_on().with("--finetune"));
  const TinyRun first = train(run.with("--exit-interval", 2));
  EXPECT_EQ(steps_of(first), (Iterations{1, 2}));
  EXPECT_EQ(first.first_loss(), tuned.first_loss());
  EXPECT_EQ(count(first.program.err,
                  "holds no checkpoint yet: the run starts from the weights in "
                  "--pretrained-checkpoint " +
                      half_done().string()),
            1U);
  const TinyRun second = train(run);
  EXPECT_EQ(steps_of(second), (Iterations{3, 4}));
  EXPECT_EQ(second.losses(), last_two(tuned.losses()));
  // Without --load every start is the first one.
  const TinyRun again =
      train(base().with("--train-iters", 4).with("--pretrained-checkpoint", half_done().string()));
  EXPECT_EQ(again.losses(), tuned.losses());
  // The model comes from there, too.
  EXPECT_EQ(train(without_model(run)
                      .with("--load", (folder / "none").string())
                      .without("--save")
                      .without("--save-interval")
                      .with("--use-checkpoint-args"))
                .first_loss(),
            tuned.first_loss());
  const std::string nothing = (folder / "nothing").string();
  expect_refusal(
      try_train(run.with("--load", nothing).with("--pretrained-checkpoint", nothing)).program, 7,
      {"--load " + nothing, "--pretrained-checkpoint " + nothing});
  // Damaged is not missing.
  write_file(folder / iteration_name(4) / "manifest.json", "{");
  write_file(folder / iteration_name(2) / "manifest.json", "{");
  expect_refusal(try_train(run).program, 7, {folder.string()});
}

TEST(Options, NoLoadOptim) {
  const TinyRun with = train(going_on());
  const TinyRun without = train(going_on().with("--no-load-optim"));
  EXPECT_EQ(steps_of(without), (Iterations{3, 4}));
  EXPECT_EQ(without.first_loss(), with.first_loss());  // the same weights
  EXPECT_NE(without.last_loss(), with.last_loss());    // updated without the old moments
}

// The schedule is the optimizer's, and starts again with it, as Megatron's.
TEST(Options, N11_NoLoadOptimStartsTheScheduleAgain) {
  const fs::path folder = new_folder();
  const Options falling = base().with("--train-iters", 4).with("--lr-decay-style", "linear");
  (void)train(saving(falling.with("--exit-interval", 2), folder));
  const Options again = falling.with("--load", folder.string());
  const auto rates = [](const TinyRun& run) {
    return run.series("train", "applied_learning_rate");
  };
  const std::vector<double> whole = rates(train(falling));
  EXPECT_EQ(rates(train(again)), (std::vector<double>{whole[2], whole[3]}));
  EXPECT_EQ(rates(train(again.with("--no-load-optim"))), (std::vector<double>{whole[0], whole[1]}));
}

TEST(Options, NoSaveOptim) {
  const fs::path folder = new_folder();
  const Options four = base().with("--train-iters", 4);
  const TinyRun run =
      train(saving(four.with("--exit-interval", 2).with("--no-save-optim"), folder));
  for (const auto& [name, shape] : saved_shapes(folder, 2)) {
    EXPECT_TRUE(name.starts_with("param/")) << name;
  }
  const Options again = four.with("--load", folder.string());
  expect_refusal(try_train(again).program, 7, {"--no-load-optim"});
  EXPECT_EQ(train(again.with("--no-load-optim")).losses(),
            train(going_on().with("--no-load-optim")).losses());
}

TEST(Options, ExitOnMissingCheckpoint) {
  const fs::path folder = new_folder();
  const TinyRun refused = try_train(resuming(base(), folder).with("--exit-on-missing-checkpoint"));
  expect_refusal(refused.program, 7, {folder.string(), "--exit-on-missing-checkpoint"});
  EXPECT_TRUE(refused.losses().empty());
  const TinyRun scratch = train(resuming(base(), folder));
  EXPECT_EQ(scratch.losses(), train(base()).losses());
}

TEST(Options, UseCheckpointArgs) {
  const TinyRun given = train(going_on());
  const Options rest = without_model(going_on());
  expect_refusal(try_train(rest).program, 2, {"--num-layers is missing"});
  const TinyRun taken = train(rest.with("--use-checkpoint-args"));
  EXPECT_EQ(taken.losses(), given.losses());
  EXPECT_EQ(steps_of(taken), (Iterations{3, 4}));
  EXPECT_EQ(count(taken.program.out, half_done().string()) > 0, true);
  EXPECT_EQ(count(taken.program.out, ", hidden_size 16"), 1U) << taken.program.out;
  // The user's word wins, and is then compared with the checkpoint.
  expect_refusal(try_train(rest.with("--use-checkpoint-args").with("--hidden-size", 32)).program, 7,
                 {"hidden_size 16 in the checkpoint, 32 asked"});
  // Values that are no default of ours: the model's kind.
  const fs::path llama = new_folder();
  const Options kind = base()
                           .with("--position-embedding-type", "rope")
                           .with("--swiglu")
                           .with("--ffn-hidden-size", 40)
                           .with("--normalization", "RMSNorm")
                           .with("--norm-epsilon", "1e-3")
                           .with("--disable-bias-linear")
                           .with("--group-query-attention")
                           .with("--num-query-groups", 1)
                           .with("--untie-embeddings-and-output-weights")
                           .with("--train-iters", 4);
  const TinyRun half = train(saving(kind.with("--exit-interval", 2), llama));
  const TinyRun whole = train(kind);
  Options none = without_model(kind).with("--load", llama.string()).with("--use-checkpoint-args");
  for (const char* name :
       {"--position-embedding-type", "--swiglu", "--ffn-hidden-size", "--normalization",
        "--norm-epsilon", "--disable-bias-linear", "--group-query-attention", "--num-query-groups",
        "--untie-embeddings-and-output-weights"}) {
    none = none.without(name);
  }
  EXPECT_EQ(train(none).losses(), last_two(whole.losses()));
  // Where no checkpoint is yet the options stand as given, as in Megatron-LM.
  const fs::path empty = new_folder();
  const TinyRun scratch = train(resuming(base(), empty).with("--use-checkpoint-args"));
  EXPECT_EQ(scratch.losses(), train(base()).losses());
}

TEST(Options, UseMpArgsFromCheckpointArgs) {
  const fs::path folder = new_folder();
  const Options two = base()
                          .with("--world-size", 2)
                          .with("--distributed-backend", "threads")
                          .with("--train-iters", 4);
  const TinyRun half = train(
      saving(two.with("--pipeline-model-parallel-size", 2).with("--exit-interval", 2), folder));
  const Options rest = two.with("--load", folder.string()).with("--use-checkpoint-args");
  const std::string of_one = "world size 2 = data 2 x context 1 x tensor 1 x pipeline 1";
  const std::string of_two = "world size 2 = data 1 x context 1 x tensor 1 x pipeline 2";
  const auto layout = [](const TinyRun& run) { return run.program.out + run.program.err; };
  EXPECT_EQ(count(layout(train(rest)), of_one), 1U);
  const TinyRun taken = train(rest.with("--use-mp-args-from-checkpoint-args"));
  EXPECT_EQ(count(layout(taken), of_two), 1U) << taken.program.describe();
  EXPECT_EQ(steps_of(taken), (Iterations{3, 4}));
  const TinyRun mine = train(
      rest.with("--use-mp-args-from-checkpoint-args").with("--pipeline-model-parallel-size", 1));
  EXPECT_EQ(count(layout(mine), of_one), 1U);
  expect_no_effect(train(two.with("--use-mp-args-from-checkpoint-args")).program,
                   "--use-mp-args-from-checkpoint-args (there is no --use-checkpoint-args)");
  // `generate` runs on as many ranks.
  const ProgramResult written =
      call({"generate", "--load", folder.string(), "--use-checkpoint-args",
            "--use-mp-args-from-checkpoint-args", "--prompt", "1 2", "--max-new-tokens", "2",
            "--tokens", "--temperature", "0"});
  EXPECT_TRUE(written.ok()) << written.describe();
  EXPECT_EQ(written.out, call({"generate", "--load", folder.string(), "--prompt", "1 2",
                               "--max-new-tokens", "2", "--tokens", "--temperature", "0"})
                             .out);
}

TEST(Options, NoUseTokenizerModelFromCheckpointArgs) {
  const Options rest = without_model(going_on())
                           .with("--use-checkpoint-args")
                           .with("--no-use-tokenizer-model-from-checkpoint-args");
  // Megatron's default tokenizer, whose files nobody named.
  expect_refusal(try_train(rest).program, 2, {"--vocab-file"});
  const Options named = rest.with("--tokenizer-type", "NullTokenizer");
  EXPECT_EQ(train(named.with("--vocab-size", 63)).losses(), train(going_on()).losses());
  // The size of the vocabulary is the model's.
  EXPECT_EQ(train(named).losses(), train(going_on()).losses());
}

}  // namespace pentatron::functional
