// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <signal.h>

#include <array>
#include <fstream>

#include "tests/functional/tiny_run.h"

// Exact resume (promise 3 of the design) and the rules of --load (promise 4).
namespace pentatron::functional {
namespace {

namespace fs = std::filesystem;

constexpr int kSteps = 12;

// Dropout and decay, so that every keyed number and schedule takes part.
Options long_run() {
  return base()
      .with("--train-iters", kSteps)
      .with("--hidden-dropout", "0.1")
      .with("--attention-dropout", "0.1")
      .with("--lr-decay-style", "cosine")
      .with("--lr-warmup-iters", 2)
      .with("--eval-iters", 1)
      .with("--eval-interval", 3);
}

struct Undisturbed {
  fs::path folder;
  TinyRun run;
  std::string hash;
};

const Undisturbed& undisturbed() {
  static const Undisturbed kMade = [] {
    Undisturbed result;
    result.folder = new_folder();
    result.run = train(saving(long_run(), result.folder, 4));
    result.hash = state_hash(result.folder, kSteps);
    return result;
  }();
  return kMade;
}

void expect_as_undisturbed(const fs::path& folder, const fs::path& metrics) {
  EXPECT_EQ(state_hash(folder, kSteps), undisturbed().hash);
  EXPECT_EQ(timeless_lines(metrics), timeless_lines(undisturbed().run.metrics_file));
}

void damage(const fs::path& file, std::size_t at_from_end) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(-static_cast<std::streamoff>(at_from_end), std::ios::end);
  const std::streampos at = stream.tellg();
  const int byte = stream.get();
  stream.seekp(at);
  stream.put(static_cast<char>(byte ^ 1));
}

fs::path some_shard(const fs::path& iteration) {
  for (const fs::directory_entry& entry : fs::directory_iterator(iteration)) {
    if (entry.path().extension() == ".safetensors") return entry.path();
  }
  ADD_FAILURE() << "no shard in " << iteration;
  return {};
}

fs::path copy_of_undisturbed() {
  const fs::path folder = new_folder() / "copy";
  fs::copy(undisturbed().folder, folder, fs::copy_options::recursive);
  return folder;
}

}  // namespace

TEST(Resume, ExactAfterStops) {
  const fs::path folder = new_folder();
  const std::string metrics = (folder / "metrics.jsonl").string();
  const Options run = resuming(long_run(), folder, 4).with("--metrics-file", metrics);
  const TinyRun first = train(run.with("--exit-interval", 5));
  EXPECT_EQ(saved_iterations(folder), (std::vector<int>{4, 5}));
  const TinyRun second = train(run.with("--exit-interval", 7));
  const TinyRun third = train(run);
  expect_as_undisturbed(folder, metrics);
}

TEST(Resume, ExactAfterKills) {
  const fs::path folder = new_folder();
  const std::string metrics = (folder / "metrics.jsonl").string();
  const Options run = resuming(long_run(), folder, 4).with("--metrics-file", metrics);
  for (const char* step :
       {"] iteration        3/", "] iteration        7/", "] iteration       10/"}) {
    const TinyRun killed = try_train(run, {.observe = [step](const RunningProgram& program) {
                                       if (program.out.find(step) != std::string::npos)
                                         ::kill(program.pid, SIGKILL);
                                     }});
    EXPECT_EQ(killed.program.signal, SIGKILL) << killed.program.describe();
  }
  const TinyRun last = train(run);
  expect_as_undisturbed(folder, metrics);
}

TEST(Resume, MetricsFileContinues) {
  const fs::path folder = new_folder();
  const std::string metrics = (folder / "metrics.jsonl").string();
  const Options run =
      resuming(base().with("--train-iters", 4), folder, 2).with("--metrics-file", metrics);
  const TinyRun first = train(run.with("--exit-interval", 3));
  // Lines of steps that a crash after the last save left behind, one of them torn.
  {
    std::ofstream file(metrics, std::ios::app);
    file << R"({"kind":"train","iteration":4,"lm_loss":77.0})"
         << "\n"
         << R"({"kind":"tra)";
  }
  const TinyRun second = train(run);
  EXPECT_EQ(second.series("train", "iteration"), (std::vector<double>{1, 2, 3, 4}));
  EXPECT_EQ(second.losses(), train(base().with("--train-iters", 4)).losses());
}

TEST(Resume, NothingThereIsScratchOnlyWhereItSaves) {
  const fs::path folder = new_folder();
  const TinyRun scratch = train(resuming(base(), folder));
  EXPECT_EQ(count(scratch.program.err, folder.string()), 1U) << scratch.program.err;
  EXPECT_EQ(count(scratch.program.err, "starting from scratch"), 1U) << scratch.program.err;
  EXPECT_EQ(scratch.losses(), train(base()).losses());

  const fs::path elsewhere = new_folder();
  const Options other = saving(base(), new_folder()).with("--load", elsewhere.string());
  expect_refusal(try_train(other).program, 7, {elsewhere.string(), "--save"});
  const std::string missing = (elsewhere / "missing").string();
  expect_refusal(try_train(base().with("--load", missing)).program, 7, {missing});
}

TEST(Resume, DamagedNewestGivesWayLoudly) {
  const fs::path folder = copy_of_undisturbed();
  fs::resize_file(some_shard(folder / iteration_name(kSteps)), 100);
  const TinyRun run = train(resuming(long_run(), folder, 4));
  EXPECT_EQ(count(run.program.out, "at iteration 8"), 2U) << run.program.describe();
  EXPECT_GE(count(run.program.err, "12"), 1U) << run.program.err;
  EXPECT_EQ(state_hash(folder, kSteps), undisturbed().hash);
}

TEST(Resume, OnlyDamagedIsRefused) {
  const fs::path folder = copy_of_undisturbed();
  for (const int iteration : saved_iterations(folder)) {
    fs::resize_file(some_shard(folder / iteration_name(iteration)), 100);
  }
  const TinyRun run = try_train(resuming(long_run(), folder));
  expect_refusal(run.program, 7, {folder.string()});
  EXPECT_TRUE(run.losses().empty());
}

TEST(Resume, FlippedBitIsRefused) {
  const fs::path folder = copy_of_undisturbed();
  for (const int iteration : saved_iterations(folder)) {
    damage(some_shard(folder / iteration_name(iteration)), 5);
  }
  expect_refusal(try_train(resuming(long_run(), folder)).program, 7, {folder.string()});
  const ProgramResult verified = call({"checkpoint", "verify", folder.string()});
  EXPECT_EQ(verified.exit_code, 7) << verified.describe();
}

TEST(Resume, OtherDataOrModelIsRefused) {
  const std::string folder = undisturbed().folder.string();
  const Options load = long_run().with("--load", folder);
  expect_refusal(try_train(load.with("--data-path", corpus(1))).program, 7, {"other data"});
  expect_refusal(try_train(load.with("--split", "70,20,10")).program, 7, {"--split"});
  expect_refusal(try_train(load.with("--seq-length", 8)).program, 7, {"--seq-length"});
  expect_refusal(try_train(load.with("--num-layers", 1)).program, 7,
                 {"another model", "num_layers 2 in the checkpoint, 1 asked"});
  expect_refusal(try_train(load.with("--lr", "0.02")).program, 7, {"another schedule", "max_lr"});
  // Advice is what helps: no option takes these from the checkpoint.
  for (const auto& [option, value, field] :
       {std::array{"--clip-grad", "0.3", "clip_grad"}, {"--adam-beta1", "0.8", "adam_beta1"}}) {
    for (const Options& asked :
         {load.with(option, value),
          load.with(option, value).with("--use-checkpoint-opt_param-scheduler")}) {
      const ProgramResult refused = try_train(asked).program;
      expect_refusal(refused, 7, {"another schedule", field, "--override-opt_param-scheduler"});
      EXPECT_EQ(refused.err.find("--use-checkpoint-opt_param-scheduler"), std::string::npos)
          << refused.describe();
    }
  }
  const TinyRun tuned = train(load.with("--data-path", corpus(1)).with("--finetune"));
  EXPECT_EQ(tuned.losses().size(), static_cast<std::size_t>(kSteps));
}

TEST(Resume, AnotherLayoutAndBackKeepsTheState) {
  const Options four = base().with("--num-attention-heads", 4);
  const Options grid = four.with("--distributed-backend", "threads")
                           .with("--world-size", 4)
                           .with("--tensor-model-parallel-size", 2)
                           .with("--pipeline-model-parallel-size", 2);
  const fs::path sharded = new_folder();
  const TinyRun first = train(saving(grid, sharded));
  const std::string hash = state_hash(sharded, 3);

  // Loading the last step leaves nothing to train; what is saved elsewhere is the loaded state.
  const fs::path single = new_folder();
  const TinyRun one = train(saving(four, single).with("--load", sharded.string()));
  EXPECT_TRUE(one.losses().empty());
  EXPECT_EQ(saved_iterations(single), (std::vector<int>{3}));
  EXPECT_EQ(state_hash(single, 3), hash);
  EXPECT_EQ(manifest(single, 3)["layout"]["axes"]["tp"], 1);

  const fs::path back = new_folder();
  const TinyRun again = train(saving(grid, back).with("--load", single.string()));
  EXPECT_EQ(state_hash(back, 3), hash);
  EXPECT_EQ(manifest(back, 3)["layout"]["axes"]["tp"], 2);

  // And training goes on from there as the undisturbed run does, within rounding.
  const TinyRun whole = train(four.with("--train-iters", 5));
  const TinyRun resumed = train(four.with("--train-iters", 5)
                                    .with("--load", back.string())
                                    .with("--override-opt_param-scheduler"));
  ASSERT_EQ(resumed.losses().size(), 2U);
  EXPECT_NEAR(resumed.first_loss(), whole.losses().at(3), 1e-5 * whole.losses().at(3));
  EXPECT_NEAR(resumed.last_loss(), whole.losses().at(4), 1e-5 * whole.losses().at(4));
}

TEST(Resume, FinetuneTakesTheWeightsOnly) {
  const Options evaluate = base()
                               .with("--skip-train")
                               .with("--eval-iters", 1)
                               .with("--load", undisturbed().folder.string());
  const Options like = evaluate.with("--hidden-dropout", "0.1").with("--attention-dropout", "0.1");
  const TinyRun tuned = train(like.with("--finetune"));
  const std::vector<double> at = tuned.series("validation", "lm_loss");
  ASSERT_EQ(at.size(), 1U);
  EXPECT_EQ(tuned.series("validation", "iteration"), (std::vector<double>{0}));
  // The trained weights on the first validation samples: not the loss of new weights.
  const TinyRun fresh = train(base().with("--skip-train").with("--eval-iters", 1));
  EXPECT_NE(at, fresh.series("validation", "lm_loss"));
  EXPECT_LT(at.front(), fresh.series("validation", "lm_loss").at(0));
}

TEST(Resume, WithoutOptimizerStateStartsItsMomentsAnew) {
  const fs::path folder = new_folder();
  const TinyRun half = train(saving(long_run().with("--exit-interval", 6), folder));
  const TinyRun with = train(long_run().with("--load", folder.string()));
  const TinyRun without = train(long_run().with("--load", folder.string()).with("--no-load-optim"));
  EXPECT_EQ(without.series("train", "iteration"), with.series("train", "iteration"));
  // The schedule starts again, as Megatron-LM's does.
  EXPECT_EQ(without.series("train", "learning_rate"), half.series("train", "learning_rate"));
  EXPECT_NE(with.series("train", "learning_rate"), half.series("train", "learning_rate"));
  EXPECT_EQ(without.first_loss(), with.first_loss());
  EXPECT_NE(without.last_loss(), with.last_loss());
}

// F10: a run made longer than the epochs it was planned for. The corpus has some 30 samples of 16
// tokens in its training part, so that 6 iterations of 4 stay within one epoch, and 30 need
// several.
TEST(Resume, AppendsEpochs) {
  const Options run = base().with("--override-opt_param-scheduler");
  const auto length = [&run](int iterations) { return run.with("--train-iters", iterations); };
  const fs::path folder = new_folder();
  (void)train(saving(length(6), folder));
  const Options longer = length(30).with("--load", folder.string());
  // Without the option: refused, naming the cause and the option.
  expect_refusal(try_train(longer).program, 7,
                 {"24 training samples", "this run needs 120", "--append-epochs"});
  // With it the planned order goes on as if nothing had happened: here for what is left of the
  // epoch.
  const fs::path whole = new_folder();
  const TinyRun first_epoch = train(saving(length(7), whole));
  const fs::path grown = new_folder();
  const Options append = saving(longer.with("--append-epochs"), grown, 13);
  const TinyRun run_on = train(append);
  const std::vector<double> iterations = run_on.series("train", "iteration");
  ASSERT_EQ(iterations.size(), 24U);
  EXPECT_EQ(iterations.front(), 7);
  EXPECT_EQ(run_on.losses().at(0), first_epoch.losses().at(6));
  // Another order than that of a run that was planned for 30 iterations from its start.
  EXPECT_NE(run_on.losses().at(0), train(length(30)).losses().at(6));
  // Interrupted behind the border and resumed, with the option or without: the same bytes.
  const std::string undisturbed_hash = state_hash(grown, 30);
  for (const bool given : {true, false}) {
    const fs::path rest = new_folder();
    const Options again =
        saving(length(30), rest).with("--load", grown.string()).with("--ckpt-step", 13);
    const TinyRun resumed = train(given ? again.with("--append-epochs") : again);
    EXPECT_EQ(resumed.losses().size(), 17U);
    EXPECT_EQ(state_hash(rest, 30), undisturbed_hash);
  }
  // And longer once more.
  const Options once_more = length(60).with("--load", grown.string());
  expect_refusal(try_train(once_more).program, 7, {"120 training samples", "--append-epochs"});
  EXPECT_EQ(train(once_more.with("--append-epochs")).losses().size(), 30U);
  // Other data is refused as ever.
  expect_refusal(try_train(longer.with("--append-epochs").with("--data-path", corpus(1))).program,
                 7, {"other data"});
}

}  // namespace pentatron::functional
