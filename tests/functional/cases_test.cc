// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/functional/tiny_run.h"

// Faults that users of this field reported in public, each through the whole program. The names are
// repository and number; docs/public_faults.md lists them all.
namespace pentatron::functional {
namespace {

namespace fs = std::filesystem;

Options with_dropout() {
  return base().with("--hidden-dropout", "0.1").with("--attention-dropout", "0.1");
}

}  // namespace

// A value that is none of the choices: the message lists them.
TEST(Cases, MegatronLM_378) {
  expect_refusal(try_train(base().with("--dataloader-type", "lazzy")).program, 2,
                 {"--dataloader-type", "lazzy", "single"});
  expect_refusal(try_train(base().with("--lr-decay-style", "cosin")).program, 2,
                 {"--lr-decay-style", "cosin", "cosine", "linear", "constant"});
  const fs::path input = new_folder() / "in.jsonl";
  write_file(input, "{\"text\": \"1 2\"}\n");
  expect_refusal(
      call({"preprocess_data", "--input", input, "--output-prefix", new_folder() / "x",
            "--tokenizer-type", "NullTokenizer", "--vocab-size", "9", "--dataset-impl", "lazy"}),
      2, {"--dataset-impl", "mmap", "lazy"});
}

// Resumed with another sequence length: refused with both values, not silently shuffled anew.
TEST(Cases, MegatronLM_1002) {
  const fs::path folder = new_folder();
  const TinyRun first = train(saving(base(), folder));
  const TinyRun longer = try_train(base()
                                       .with("--load", folder.string())
                                       .with("--train-iters", 6)
                                       .with("--seq-length", 8)
                                       .with("--override-opt_param-scheduler"));
  expect_refusal(longer.program, 7, {"--seq-length"});
  EXPECT_TRUE(longer.losses().empty());
}

// Resumed with other data: refused; the way to start on new data on purpose is named and works.
TEST(Cases, MegatronLM_1343) {
  const fs::path folder = new_folder();
  const TinyRun first = train(saving(base(), folder));
  const Options other = base()
                            .with("--load", folder.string())
                            .with("--data-path", corpus(1))
                            .with("--train-iters", 5);
  expect_refusal(try_train(other.with("--override-opt_param-scheduler")).program, 7,
                 {"other data", "--finetune"});
  EXPECT_EQ(train(other.with("--finetune")).losses().size(), 5U);
}

// The same global batch cut into micro-batches of 1, 2 and 4, with uneven loss masks.
TEST(Cases, NeMoSpeech_8343) {
  const Options masked = base()
                             .with("--global-batch-size", 4)
                             .with("--eod-mask-loss")
                             .with("--reset-position-ids")
                             .with("--reset-attention-mask");
  std::vector<Options> runs;
  for (const int size : {1, 2, 4}) runs.push_back(masked.with("--micro-batch-size", size));
  const std::vector<TinyRun> done = train_all(runs);
  const std::vector<double> counted = done[0].series("train", "valid_tokens");
  EXPECT_LT(counted.at(0), 4 * 16) << "the masks must leave tokens out";
  for (const TinyRun& run : done) {
    EXPECT_EQ(run.series("train", "valid_tokens"), counted);
    expect_same_losses(run, done[0], 1e-6);
    const std::vector<double> norms = run.series("train", "grad_norm");
    for (std::size_t i = 0; i < norms.size(); ++i) {
      EXPECT_NEAR(norms[i], done[0].series("train", "grad_norm").at(i), 1e-5 * norms[i]);
    }
  }
}

// The same command twice: the same bytes.
TEST(Cases, MegatronLM_2369) {
  std::vector<std::string> hashes;
  std::vector<std::vector<std::string>> lines;
  for (int run = 0; run < 2; ++run) {
    const fs::path folder = new_folder();
    const TinyRun done = train(saving(with_dropout().with("--deterministic-mode"), folder));
    hashes.push_back(state_hash(folder));
    lines.push_back(timeless_lines(done.metrics_file));
  }
  EXPECT_EQ(hashes[0], hashes[1]);
  EXPECT_EQ(lines[0], lines[1]);
}

// Adam's constants other than the defaults: the first update after a resume equals the undisturbed
// one.
TEST(Cases, TtMetal_53212) {
  const Options run =
      base().with("--train-iters", 6).with("--adam-beta1", "0.7").with("--adam-beta2", "0.6");
  const fs::path folder = new_folder();
  const fs::path whole = new_folder();
  const TinyRun undisturbed = train(saving(run, whole));
  const TinyRun half = train(resuming(run, folder).with("--exit-interval", 3));
  const TinyRun rest = train(resuming(run, folder));
  EXPECT_EQ(state_hash(folder, 6), state_hash(whole, 6));
  EXPECT_EQ(rest.losses().size(), 3U);
}

// Checkpoints but no file that names the latest: the newest valid one is found, never a random
// start.
TEST(Cases, Dlrover_1065) {
  const Options run = base().with("--train-iters", 6);
  const fs::path folder = new_folder();
  const TinyRun half = train(resuming(run, folder, 1).with("--exit-interval", 3));
  ASSERT_TRUE(fs::remove(folder / "latest_checkpointed_iteration.txt"));
  const TinyRun rest = train(resuming(run, folder, 1));
  EXPECT_EQ(rest.series("train", "iteration"), (std::vector<double>{4, 5, 6}));
  const fs::path whole = new_folder();
  const TinyRun undisturbed = train(saving(run, whole));
  EXPECT_EQ(state_hash(folder, 6), state_hash(whole, 6));
}

// Norms and biases are not decayed, and the program says what is.
TEST(Cases, FastLLM_545) {
  const TinyRun run = train(base());
  // 2 layers of width 16: word and position tables, and per layer q, k, v, projection and two of
  // the mlp.
  EXPECT_EQ(count(run.program.out, " > weight decay 0.01 on 14 matrices; none on 22 vectors"), 1U)
      << run.program.out;
}

// Throughput of a small model is printed in the unit that the line names.
TEST(Cases, BigscienceMegatronDeepSpeed_223) {
  const TinyRun run = train(base().with("--log-throughput").with("--log-interval", 1));
  const std::vector<std::string> lines = run.iteration_lines();
  ASSERT_FALSE(lines.empty());
  for (const std::string& line : lines) {
    const std::size_t at = line.find("throughput per GPU (TFLOP/s/GPU): ");
    ASSERT_NE(at, std::string::npos) << line;
    // Under 1 MFLOP a step in over a tenth of a millisecond cannot be a tenth of a TFLOP/s.
    EXPECT_EQ(line.substr(at + 34, 3), "0.0") << line;
  }
}

namespace {

Options on_ranks(const Options& options, int ranks) {
  return options.with("--distributed-backend", "threads").with("--world-size", ranks);
}

// Stopped after half of its steps and resumed: the losses and the state of a run that went through.
void expect_exact_resume(const Options& run) {
  const fs::path through = new_folder();
  const TinyRun whole = train(saving(run.with("--train-iters", 6), through));
  const fs::path stopped = new_folder();
  const Options halves = resuming(run.with("--train-iters", 6), stopped, 3);
  const TinyRun first = train(halves.with("--exit-interval", 3));
  const TinyRun second = train(halves);
  ASSERT_EQ(first.losses().size(), 3U);
  ASSERT_EQ(second.losses().size(), 3U);
  for (std::size_t step = 0; step < 3; ++step) {
    EXPECT_EQ(second.losses()[step], whole.losses().at(3 + step)) << step;
  }
  EXPECT_EQ(state_hash(stopped, 6), state_hash(through, 6));
}

// A state that was saved in one layout, loaded in another and saved there is the same state.
void expect_same_state(const Options& saved, const Options& loaded) {
  const fs::path first = new_folder();
  (void)train(saving(saved, first));
  const fs::path second = new_folder();
  (void)train(saving(loaded, second).with("--load", first.string()));
  EXPECT_EQ(state_hash(second, 3), state_hash(first, 3));
}

}  // namespace

// Resumed on four ranks that do not divide the parameters evenly.
TEST(Cases, Torchtitan_809) {
  expect_exact_resume(on_ranks(base(), 4)
                          .with("--global-batch-size", 8)
                          .with("--hidden-size", 20)
                          .with("--use-distributed-optimizer"));
}

// Dropout after a resume on four ranks: every rank's masks are those of the run that went through.
TEST(Cases, MegatronLM_6858) {
  expect_exact_resume(on_ranks(with_dropout(), 4)
                          .with("--tensor-model-parallel-size", 2)
                          .with("--sequence-parallel")
                          .with("--hidden-size", 32));
}

// Optimizer state of two data-parallel ranks on three, and the other way.
TEST(Cases, MegatronLM_659) {
  const Options sharded = base()
                              .with("--micro-batch-size", 1)
                              .with("--global-batch-size", 6)
                              .with("--use-distributed-optimizer");
  expect_same_state(on_ranks(sharded, 2), on_ranks(sharded, 3));
  expect_same_state(on_ranks(sharded, 3), on_ranks(sharded, 2));
}

// Saved by tensor-parallel ranks, loaded by stages.
TEST(Cases, MegatronDeepSpeed_439) {
  const Options tensor = on_ranks(base(), 2).with("--tensor-model-parallel-size", 2);
  const Options stages = on_ranks(base(), 2).with("--pipeline-model-parallel-size", 2);
  expect_same_state(tensor, stages);
  expect_same_state(stages, tensor);
  // Trained on in the other layout: the losses of a run that stayed in its own.
  for (const auto& [first, second] : {std::pair{tensor, stages}, {stages, tensor}}) {
    const Options six = first.with("--train-iters", 6);
    const TinyRun whole = train(six);
    const fs::path folder = new_folder();
    (void)train(resuming(six, folder, 3).with("--exit-interval", 3));
    const TinyRun rest = train(second.with("--train-iters", 6).with("--load", folder.string()));
    ASSERT_EQ(rest.losses().size(), 3U);
    for (std::size_t step = 0; step < 3; ++step) {
      EXPECT_NEAR(rest.losses()[step], whole.losses().at(3 + step), 1e-5 * whole.losses()[3 + step])
          << step;
    }
  }
}

}  // namespace pentatron::functional
