// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <sstream>

#include "pentatron/base/event_file_test_support.h"
#include "tests/functional/tiny_run.h"

// Each test fails when the program ignores the option that it is named after.
namespace pentatron::functional {
namespace {

namespace fs = std::filesystem;
using Numbers = std::vector<double>;
using Names = std::set<std::string>;

// The events of a folder's files, in the order of the files' names.
std::vector<ReadEvent> events_of(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<ReadEvent> events;
  for (const fs::path& file : files) {
    for (ReadEvent& event : read_event_file(file)) events.push_back(std::move(event));
  }
  return events;
}

struct TensorboardRun {
  TinyRun run;
  std::vector<ReadEvent> events;

  [[nodiscard]] Names scalars() const {
    Names names;
    for (const ReadEvent& event : events) {
      if (!event.tag.empty() && event.plugin.empty()) names.insert(event.tag);
    }
    return names;
  }
  [[nodiscard]] std::vector<std::int64_t> steps(const std::string& tag) const {
    std::vector<std::int64_t> found;
    for (const ReadEvent& event : events) {
      if (event.tag == tag) found.push_back(event.step);
    }
    return found;
  }
  [[nodiscard]] std::vector<float> values(const std::string& tag) const {
    std::vector<float> found;
    for (const ReadEvent& event : events) {
      if (event.tag == tag) found.push_back(event.value);
    }
    return found;
  }
  [[nodiscard]] std::string text(const std::string& tag) const {
    for (const ReadEvent& event : events) {
      if (event.tag == tag + "/text_summary") return event.text;
    }
    return "missing";
  }
};

TensorboardRun with_events(const Options& options) {
  const fs::path folder = new_folder() / "events";
  TensorboardRun result{.run = train(options.with("--tensorboard-dir", folder.string())),
                        .events = {}};
  result.events = events_of(folder);
  return result;
}

std::vector<float> floats(const Numbers& numbers) { return {numbers.begin(), numbers.end()}; }

std::size_t lines_with(const std::string& text, const std::string& part) {
  return count(text, part);
}

}  // namespace

TEST(Options, TensorboardDir) {
  const TensorboardRun run = with_events(base().with("--eval-iters", 1));
  EXPECT_EQ(run.scalars(),
            (Names{"batch-size", "batch-size vs samples", "grad-norm", "grad-norm vs samples",
                   "learning-rate", "learning-rate vs samples", "lm loss", "lm loss vs samples",
                   "loss-scale", "loss-scale vs samples", "lm loss validation",
                   "lm loss validation vs samples", "lm loss test", "lm loss test vs samples"}));
  EXPECT_EQ(run.values("lm loss"), floats(run.run.losses()));
  EXPECT_EQ(run.steps("lm loss"), (std::vector<std::int64_t>{1, 2, 3}));
  EXPECT_EQ(run.values("lm loss vs samples"), floats(run.run.losses()));
  EXPECT_EQ(run.steps("lm loss vs samples"), (std::vector<std::int64_t>{4, 8, 12}));
  EXPECT_EQ(run.values("grad-norm"), floats(run.run.series("train", "grad_norm")));
  EXPECT_EQ(run.values("lm loss validation"), floats(run.run.series("validation", "lm_loss")));
  EXPECT_EQ(run.values("batch-size"), (std::vector<float>{4, 4, 4}));
  EXPECT_EQ(run.values("learning-rate"), (std::vector<float>{0.01F, 0.01F, 0.01F}));
  // The arguments as text.
  EXPECT_EQ(run.text("hidden_size"), "16");
  EXPECT_EQ(run.text("lr"), "0.01");
  EXPECT_EQ(run.text("bf16"), "False");
  EXPECT_EQ(run.text("data_parallel_size"), "1");
  // Nothing of it changes the run.
  EXPECT_EQ(run.run.losses(), train(base()).losses());
}

TEST(Options, TensorboardGoesOnInAnotherFile) {
  const fs::path folder = new_folder() / "events";
  const fs::path saves = new_folder();
  const Options four = base().with("--train-iters", 4).with("--tensorboard-dir", folder.string());
  (void)train(saving(four.with("--exit-interval", 2), saves));
  (void)train(resuming(four, saves));
  std::vector<std::int64_t> steps;
  for (const ReadEvent& event : events_of(folder)) {
    if (event.tag == "lm loss") steps.push_back(event.step);
  }
  EXPECT_EQ(steps, (std::vector<std::int64_t>{1, 2, 3, 4}));
}

TEST(Options, TensorboardLogInterval) {
  const TensorboardRun run =
      with_events(base().with("--train-iters", 5).with("--tensorboard-log-interval", 2));
  EXPECT_EQ(run.steps("lm loss"), (std::vector<std::int64_t>{2, 4}));
  const Numbers losses = run.run.losses();
  EXPECT_EQ(run.values("lm loss"), floats({losses.at(1), losses.at(3)}));
}

TEST(Options, TensorboardQueueSize) {
  // What a killed run leaves: everything when nothing may wait, else not even the arguments.
  const auto killed = [](const Options& options) {
    const fs::path folder = new_folder() / "events";
    bool sent = false;
    const TinyRun run =
        try_train(options.with("--train-iters", 100000).with("--tensorboard-dir", folder.string()),
                  {.observe = [&sent](const RunningProgram& program) {
                    if (sent || program.out.find("] iteration        3/") == std::string::npos) {
                      return;
                    }
                    sent = ::kill(program.pid, SIGKILL) == 0;
                  }});
    EXPECT_EQ(run.program.signal, SIGKILL);
    std::size_t losses = 0;
    for (const ReadEvent& event : events_of(folder)) losses += event.tag == "lm loss" ? 1 : 0;
    return losses;
  };
  EXPECT_GE(killed(base().with("--tensorboard-queue-size", 1)), 3U);
  EXPECT_EQ(killed(base().with("--tensorboard-queue-size", 1000000)), 0U);
}

TEST(Options, LogTimersToTensorboard) {
  const Options timing = base().with("--timing-log-level", 1).with("--log-throughput");
  const Names without = with_events(timing).scalars();
  const TensorboardRun run = with_events(timing.with("--log-timers-to-tensorboard"));
  for (const char* tag :
       {"iteration-time", "throughput", "forward-backward-time", "optimizer-time"}) {
    EXPECT_FALSE(without.contains(tag)) << tag;
    ASSERT_EQ(run.values(tag).size(), 3U) << tag;
    for (const float value : run.values(tag)) EXPECT_GT(value, 0) << tag;
  }
  // Parts of a step take no longer than the step, in the same unit.
  EXPECT_LT(run.values("forward-backward-time").at(2), run.values("iteration-time").at(2));
}

TEST(Options, NoLogLossScaleToTensorboard) {
  EXPECT_TRUE(with_events(base()).scalars().contains("loss-scale"));
  const Names left = with_events(base().with("--no-log-loss-scale-to-tensorboard")).scalars();
  EXPECT_FALSE(left.contains("loss-scale"));
  EXPECT_TRUE(left.contains("lm loss"));
}

TEST(Options, LogValidationPplToTensorboard) {
  const Options evaluating = base().with("--eval-iters", 1);
  EXPECT_FALSE(with_events(evaluating).scalars().contains("lm loss validation ppl"));
  const TensorboardRun run = with_events(evaluating.with("--log-validation-ppl-to-tensorboard"));
  const std::vector<float> perplexities = run.values("lm loss validation ppl");
  ASSERT_EQ(perplexities.size(), 1U);
  EXPECT_FLOAT_EQ(perplexities[0],
                  static_cast<float>(std::exp(run.run.series("validation", "lm_loss").at(0))));
  EXPECT_EQ(run.steps("lm loss validation ppl vs samples"), (std::vector<std::int64_t>{12}));
}

TEST(Options, LogMemoryToTensorboard) {
  EXPECT_FALSE(with_events(base()).scalars().contains("mem-allocated-bytes"));
  const TensorboardRun run = with_events(base().with("--log-memory-to-tensorboard"));
  for (const char* tag : {"mem-reserved-bytes", "mem-allocated-bytes", "mem-max-allocated-bytes",
                          "mem-allocated-count"}) {
    ASSERT_EQ(run.values(tag).size(), 3U) << tag;
    EXPECT_GT(run.values(tag)[2], 0) << tag;
  }
  // The weights and moments alone: more than 10,000 values of 4 bytes, three times.
  EXPECT_GT(run.values("mem-allocated-bytes").at(2), 3 * 4 * 5000);
  EXPECT_GE(run.values("mem-max-allocated-bytes").at(2), run.values("mem-allocated-bytes").at(2));
  EXPECT_GT(run.values("mem-reserved-bytes").at(2), run.values("mem-allocated-bytes").at(2));
}

TEST(Options, LogWorldSizeToTensorboard) {
  EXPECT_FALSE(with_events(base()).scalars().contains("world-size"));
  const TensorboardRun run = with_events(base()
                                             .with("--log-world-size-to-tensorboard")
                                             .with("--distributed-backend", "threads")
                                             .with("--world-size", 2));
  EXPECT_EQ(run.values("world-size"), (std::vector<float>{2, 2, 2}));
}

TEST(Options, TimingLogLevel) {
  const Options evaluating = base().with("--eval-iters", 1);
  const std::string title = "(min, max) time across ranks (ms):\n";
  const auto line = [](const std::string& name) {
    return "    " + name + " " + std::string(47 - name.size(), '.') + ": (";
  };
  const std::string coarse = train(evaluating).program.out;
  EXPECT_EQ(lines_with(coarse, title + line("evaluate")), 2U) << coarse;  // valid and test
  EXPECT_EQ(lines_with(coarse, line("forward-backward")), 0U);
  const std::string parts = train(evaluating.with("--timing-log-level", 1)).program.out;
  EXPECT_EQ(lines_with(parts, title + line("forward-backward")), 3U) << parts;
  for (const char* name : {"all-grads-sync", "params-all-gather", "optimizer-unscale-and-check-inf",
                           "optimizer-clip-main-grad", "optimizer-inner-step", "optimizer"}) {
    EXPECT_EQ(lines_with(parts, line(name)), 3U) << name;
  }
  EXPECT_EQ(lines_with(parts, line("forward-compute")), 0U);
  const std::string passes = train(evaluating.with("--timing-log-level", 2)).program.out;
  for (const char* name :
       {"forward-backward", "forward-compute", "backward-compute", "batch-generator"}) {
    EXPECT_EQ(lines_with(passes, line(name)), 3U) << name;
  }
  // Sends and receives between pipeline stages.
  const std::string pipeline = train(base()
                                         .with("--timing-log-level", 2)
                                         .with("--distributed-backend", "threads")
                                         .with("--world-size", 2)
                                         .with("--pipeline-model-parallel-size", 2))
                                   .program.out;
  for (const char* name : {"forward-recv", "forward-send", "backward-recv", "backward-send"}) {
    EXPECT_EQ(lines_with(pipeline, line(name)), 3U) << name << pipeline;
  }
  // Sums that only some ranks share, with and without meeting before them.
  const Options four = base()
                           .with("--timing-log-level", 1)
                           .with("--distributed-backend", "threads")
                           .with("--world-size", 4)
                           .with("--tensor-model-parallel-size", 2)
                           .with("--sequence-parallel")
                           .with("--pipeline-model-parallel-size", 2);
  for (const Options& options : {four, four.with("--no-barrier-with-level-1-timing")}) {
    const std::string out = train(options).program.out;
    for (const char* name : {"layernorm-grads-all-reduce", "embedding-grads-all-reduce"}) {
      EXPECT_EQ(lines_with(out, line(name)), 3U) << name << out;
    }
  }
  // A save is timed when it is made.
  const std::string saved = train(saving(base(), new_folder())).program.out;
  EXPECT_EQ(lines_with(saved, title + line("save-checkpoint")), 1U) << saved;
}

TEST(Options, TimingLogOption) {
  const Options two = base()
                          .with("--timing-log-level", 1)
                          .with("--distributed-backend", "threads")
                          .with("--world-size", 2);
  const std::string most = train(two.with("--timing-log-option", "max")).program.out;
  EXPECT_EQ(lines_with(most, "max time across ranks (ms):\n    forward-backward ......"), 3U)
      << most;
  EXPECT_EQ(lines_with(most, "(min, max)"), 0U);
  const std::string all = train(two.with("--timing-log-option", "all")).program.out;
  EXPECT_EQ(lines_with(all, "times across ranks (ms):\n  forward-backward:\n     rank  0: "), 3U)
      << all;
  EXPECT_GE(lines_with(all, "\n     rank  1: "), 3U);
}

TEST(Options, LogMemoryInterval) {
  const Options ten = base().with("--train-iters", 10).with("--log-interval", 4);
  const auto reported = [](const Options& options) {
    const std::string out = train(options).program.out;
    std::vector<int> iterations;
    for (int i = 1; i <= 10; ++i) {
      const std::string line =
          "[Rank 0] (after " + std::to_string(i) + " iterations) memory (MB) | allocated: ";
      for (std::size_t n = count(out, line); n > 0; --n) iterations.push_back(i);
    }
    return iterations;
  };
  // At the first two lines: the optimizer's moments come with the first update.
  EXPECT_EQ(reported(ten), (std::vector<int>{1, 4}));
  EXPECT_EQ(reported(ten.with("--log-memory-interval", 3)), (std::vector<int>{1, 3, 4, 6, 9}));
}

TEST(Options, NumZerosAreCountedOnceInEveryLayout) {
  EXPECT_EQ(count(train(base()).program.out, "num zeros:"), 0U);
  const TensorboardRun run = with_events(base().with("--log-num-zeros-in-grad"));
  EXPECT_EQ(count(run.run.program.out, " | num zeros: "), 3U);
  const Numbers zeros = run.run.series("train", "num_zeros");
  ASSERT_EQ(zeros.size(), 3U);
  EXPECT_EQ(run.values("num-zeros"), floats(zeros));
  // The tied output layer gives every row of the vocabulary a gradient: nothing is zero. Apart,
  // rows of the input table that no token of the batch asked for are: whole rows of 16.
  EXPECT_EQ(zeros[0], 0);
  const Numbers apart =
      train(base().with("--log-num-zeros-in-grad").with("--untie-embeddings-and-output-weights"))
          .series("train", "num_zeros");
  ASSERT_EQ(apart.size(), 3U);
  for (const double number : apart) {
    EXPECT_GT(number, 0);
    EXPECT_LT(number, 64 * 16);
    EXPECT_EQ(std::fmod(number, 16), 0);
  }
  // Ranks count what they hold, each element once.
  const Numbers sharded = train(base()
                                    .with("--log-num-zeros-in-grad")
                                    .with("--untie-embeddings-and-output-weights")
                                    .with("--use-distributed-optimizer")
                                    .with("--distributed-backend", "threads")
                                    .with("--world-size", 2))
                              .series("train", "num_zeros");
  EXPECT_EQ(sharded, apart);
}

TEST(Options, LogEnergy) {
  // GPUs have counters, this machine's CPU does not: said at once, not left out in silence.
  const TinyRun run = try_train(base().with("--log-energy").with("--device", "cpu"));
  expect_refusal(run.program, 8, {"--log-energy", "computes on the CPU", "drop"});
  EXPECT_TRUE(run.iteration_lines().empty());
}

TEST(Options, LogMaxAttentionLogit) {
  EXPECT_EQ(count(train(base()).program.out, "max attention logit"), 0U);
  const Options logging = base().with("--log-max-attention-logit");
  const TensorboardRun run = with_events(logging);
  const Numbers logits = run.run.series("train", "max_attention_logit");
  ASSERT_EQ(logits.size(), 3U);
  EXPECT_NE(logits[0], logits[2]);
  EXPECT_EQ(run.values("max_attention_logit"), floats(logits));
  EXPECT_EQ(count(run.run.program.out, " | max attention logit: "), 3U);
  EXPECT_EQ(run.run.losses(), train(base()).losses());
  const Numbers halves = train(logging.with("--tensor-model-parallel-size", 2)
                                   .with("--distributed-backend", "threads")
                                   .with("--world-size", 2))
                             .series("train", "max_attention_logit");
  ASSERT_EQ(halves.size(), 3U);
  EXPECT_NEAR(halves[0], logits[0], 1e-5 * std::abs(logits[0]));
}

TEST(Options, Trace) {
  const fs::path folder = new_folder();
  const Options traced = base()
                             .with("--train-iters", 3)
                             .with("--trace", (folder / "t").string())
                             .with("--profile-step-start", 1)
                             .with("--profile-step-end", 2);
  expect_same_losses(train(traced), train(base().with("--train-iters", 3)), 0);
  const nlohmann::json file = nlohmann::json::parse(read_file(folder / "t/rank-00000.json"));
  // One iteration of two micro-batches.
  std::map<std::string, int> times;
  for (const nlohmann::json& event : file.at("traceEvents")) {
    ++times[event.at("name").get<std::string>()];
  }
  EXPECT_EQ(times["forward"], 2);
  EXPECT_EQ(times["backward"], 2);
  EXPECT_EQ(times["forward decoder.layers.1"], 2);
  EXPECT_EQ(times["optimizer"], 1);
  const ProgramResult told = call({"profile", (folder / "t").string(), "--top", "3"});
  EXPECT_TRUE(told.ok()) << told.describe();
  EXPECT_EQ(count(told.out, "ms traced"), 1U) << told.out;
  EXPECT_EQ(count(told.out, "\n  forward "), 1U) << told.out;
  expect_refusal(call({"profile", folder.string()}), 2, {"holds no rank-*.json"});

  const Options of_another_rank = traced.with("--profile-ranks", 1);
  expect_refusal(try_train(of_another_rank).program, 2, {"--profile-ranks 1", "there are 1 ranks"});
  expect_refusal(try_train(traced.with("--profile-step-start", 2)).program, 2,
                 {"--profile-step-start 2 is not below --profile-step-end 2"});
  // Beyond the run's end: said, and no file.
  const TinyRun late = try_train(base().with("--trace", (folder / "late").string()));
  EXPECT_TRUE(late.program.ok());
  EXPECT_EQ(count(late.program.err + late.program.out,
                  "nothing was traced: none of the iterations 11 to 12"),
            1U);
  EXPECT_FALSE(fs::exists(folder / "late/rank-00000.json"));
}

TEST(Options, LogProgress) {
  const fs::path folder = new_folder();
  (void)train(saving(base().with("--train-iters", 4).with("--log-progress"), folder, 2));
  std::vector<std::vector<std::string>> lines;
  std::istringstream in(read_file(folder / "progress.txt"));
  for (std::string line; std::getline(in, line);) {
    lines.emplace_back();
    std::istringstream fields(line);
    for (std::string field; std::getline(fields, field, '\t');) lines.back().push_back(field);
  }
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(std::vector<std::string>(lines[0].begin() + 1, lines[0].end()),
            (std::vector<std::string>{"Job ID: ", "# GPUs: 1", "Starting job"}));
  ASSERT_EQ(lines[2].size(), 9U);
  EXPECT_EQ(lines[1][3], "Saved checkpoint");
  EXPECT_EQ(lines[1][4], "Iteration: 2");
  EXPECT_EQ(lines[2][4], "Iteration: 4");
  EXPECT_TRUE(lines[2][5].starts_with("Job throughput: ")) << lines[2][5];
  EXPECT_TRUE(lines[2][6].starts_with("Cumulative throughput: ")) << lines[2][6];
  // 4 steps of 4 x 16 tokens of 2 layers: 6 x 256 x (2 x (12 x 16^2) + 16 x 64) + 6 x 16 x 16^2 x 2
  // x 16
  EXPECT_EQ(lines[2][7], "Floating-point operations: 1.18e+07");
  EXPECT_TRUE(lines[2][8].starts_with("Tokens (in billions): 0.00")) << lines[2][8];
  const fs::path other = new_folder();
  (void)train(saving(base(), other));
  EXPECT_FALSE(fs::exists(other / "progress.txt"));
}

namespace {
// Prompt and text of each sample in a run's metrics file.
std::vector<std::pair<std::string, std::string>> samples_of(const TinyRun& run) {
  std::vector<std::pair<std::string, std::string>> samples;
  std::istringstream in(read_file(run.metrics_file));
  for (std::string line; std::getline(in, line);) {
    const nlohmann::json json = nlohmann::json::parse(line);
    if (json["kind"] == "sample") samples.emplace_back(json["prompt"], json["text"]);
  }
  return samples;
}

std::size_t words_in(const std::string& text) {
  std::istringstream in(text);
  return static_cast<std::size_t>(std::distance(std::istream_iterator<std::string>(in), {}));
}
}  // namespace

TEST(Options, SamplePrompt) {
  const fs::path folder = new_folder();
  const Options evaluating =
      base().with("--eval-iters", 1).with("--eval-interval", 2).with("--train-iters", 4);
  const Options writing = evaluating.with("--sample-prompt", std::vector<std::string>{"1 2 3", "7"})
                              .with("--sample-length", 6);
  const TinyRun run = train(saving(writing, folder));
  const auto samples = samples_of(run);
  // At 2, at 4 and after training.
  ASSERT_EQ(samples.size(), 6U);
  EXPECT_EQ(samples[0].first, "1 2 3");
  EXPECT_EQ(samples[1].first, "7");
  EXPECT_EQ(samples[2], samples[4]);
  EXPECT_EQ(count(run.program.out, " sample at iteration 2 | '1 2 3' | "), 1U);
  // The last one is what the checkpoint writes.
  const ProgramResult generated = call({"generate", "--load", folder.string(), "--prompt", "1 2 3",
                                        "--max-new-tokens", "6", "--temperature", "0"});
  EXPECT_TRUE(generated.ok()) << generated.describe();
  EXPECT_EQ(samples[4].second.front(), ' ') << "prompt and text stand side by side on the page";
  EXPECT_NE(generated.out.find("1 2 3" + samples[4].second), std::string::npos)
      << generated.out << " against " << samples[4].second;
  // Writing changes nothing: losses and the whole state are those of a run without.
  const fs::path plain = new_folder();
  EXPECT_EQ(run.losses(), train(saving(evaluating, plain)).losses());
  EXPECT_EQ(state_hash(folder), state_hash(plain));
  // Every layout writes the same.
  const Options threads = writing.with("--distributed-backend", "threads").with("--world-size", 2);
  EXPECT_EQ(samples_of(train(threads)), samples);
  EXPECT_EQ(samples_of(train(threads.with("--use-distributed-optimizer"))), samples);
  for (const char* split : {"--tensor-model-parallel-size", "--pipeline-model-parallel-size"}) {
    EXPECT_EQ(samples_of(train(threads.with(split, 2))), samples) << split;
  }
}

// A short run is evaluated on as many batches as it has steps, unless --eval-iters is given.
TEST(Options, ShortRunsHaveShortEvaluations) {
  const Options open = base().without("--eval-iters").with("--split", "60,20,20");
  const auto batches = [](const TinyRun& run) {
    return run.series("validation", "valid_tokens").at(0) / (4 * 16);
  };
  const TinyRun short_run = train(open);
  EXPECT_EQ(batches(short_run), 3);
  EXPECT_EQ(count(short_run.program.err, "evaluations take 3 batches"), 1U)
      << short_run.program.err;
  const TinyRun asked = train(open.with("--eval-iters", 5));
  EXPECT_EQ(batches(asked), 5);
  EXPECT_EQ(count(asked.program.err, "evaluations take"), 0U) << asked.program.err;
}

// In a pipe Megatron's lines, unless a terminal's are asked for.
TEST(Options, LogFormat) {
  const TinyRun plain = train(base().with("--log-interval", 1));
  EXPECT_EQ(plain.iteration_lines().size(), 3U) << plain.program.out;
  EXPECT_EQ(train(base().with("--log-interval", 1).with("--log-format", "megatron"))
                .iteration_lines()
                .size(),
            3U);
  const TinyRun compact = train(base().with("--log-interval", 1).with("--log-format", "terminal"));
  EXPECT_EQ(compact.iteration_lines().size(), 0U) << compact.program.out;
  for (const char* row : {"\n1/3  loss ", "\n2/3  loss ", "\n3/3  loss ", "\ndone: 3 iterations"}) {
    EXPECT_EQ(count(compact.program.out, row), 1U) << row << compact.program.out;
  }
  EXPECT_EQ(count(compact.program.out, "\x1b"), 0U) << compact.program.out;
  EXPECT_EQ(compact.losses(), plain.losses());
  expect_refusal(try_train(base().with("--log-format", "fancy")).program, 2,
                 {"--log-format", "fancy", "terminal", "megatron"});
}

TEST(Options, Quiet) {
  const Options short_run = base().with("--log-interval", 1).with("--quiet");
  for (const char* format : {"megatron", "terminal"}) {
    const TinyRun run = train(
        short_run.with("--log-format", format).with("--eval-iters", 1).with("--split", "80,20,0"));
    const bool megatron = std::string(format) == "megatron";
    EXPECT_EQ(run.iteration_lines().size(), megatron ? 1U : 0U) << run.program.out;
    EXPECT_EQ(count(run.program.out, megatron ? "iteration        3/       3" : "3/3  loss "), 1U)
        << run.program.out;
    EXPECT_EQ(count(run.program.out, "validation"), 1U + (megatron ? 1U : 0U)) << run.program.out;
    EXPECT_EQ(count(run.program.out, "number of parameters"), 0U) << run.program.out;
    EXPECT_EQ(run.program.err, "") << run.program.err;
  }
  // A run that ends early has its last line too.
  const TinyRun left = train(short_run.with("--exit-interval", 2));
  EXPECT_EQ(left.iteration_lines().size(), 1U) << left.program.out;
  EXPECT_EQ(count(left.program.out, "iteration        2/       3"), 1U) << left.program.out;
}

TEST(Options, SampleLength) {
  const Options writing = base().with("--eval-iters", 1).with("--sample-prompt", "5 6");
  for (const int length : {1, 9}) {
    const auto samples = samples_of(train(writing.with("--sample-length", length)));
    ASSERT_EQ(samples.size(), 1U);
    // Shorter only where the document ended.
    EXPECT_LE(words_in(samples[0].second), static_cast<std::size_t>(length));
  }
  expect_refusal(try_train(writing.with("--sample-length", 15)).program, 2,
                 {"--sample-prompt '5 6' has 2 tokens", "--sample-length 15", "16 positions"});
  expect_no_effect(
      try_train(base().with("--sample-prompt", "5 6").with("--sample-length", 9)).program,
      "--sample-prompt");
}

}  // namespace pentatron::functional
