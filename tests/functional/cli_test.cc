// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <signal.h>

#include <cstdlib>
#include <sstream>

#include "tests/functional/tiny_run.h"

// What the program says of itself.
namespace pentatron::functional {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCommands[] = {"pretrain_gpt",
                                     "launch",
                                     "preprocess_data",
                                     "inspect_dataset",
                                     "train_tokenizer",
                                     "generate",
                                     "score",
                                     "evaluate",
                                     "checkpoint",
                                     "convert",
                                     "plot",
                                     "watch",
                                     "plan_schedule",
                                     "options",
                                     "doctor",
                                     "completion",
                                     "man",
                                     "version",
                                     "profile",
                                     "bench",
                                     "merge_datasets",
                                     "prepare_cache",
                                     "build_sequences_per_dataset"};

std::string without_last_newlines(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

}  // namespace

TEST(Cli, HelpOfEveryCommand) {
  const ProgramResult all = call({"--help"});
  EXPECT_TRUE(all.ok()) << all.describe();
  for (const char* command : kCommands) {
    EXPECT_EQ(count(all.out, std::string("\n  ") + command + " "), 1U) << all.out;
    const ProgramResult help = call({command, "--help"});
    EXPECT_TRUE(help.ok()) << command << ": " << help.describe();
    EXPECT_GT(help.out.size(), 100U) << command;
    EXPECT_TRUE(help.err.empty()) << help.err;
  }
  EXPECT_GT(count(call({"pretrain_gpt", "--help", "optimizer"}).out, "--adam-beta2"), 0U);
  EXPECT_GT(count(call({"pretrain_gpt", "--help", "--lr"}).out, "highest learning rate"), 0U);
}

TEST(Cli, Version) {
  const ProgramResult version = call({"--version"});
  EXPECT_TRUE(version.ok()) << version.describe();
  EXPECT_TRUE(version.out.starts_with("pentatron ")) << version.out;
  for (const char* part : {"\nlibtorch 2.", "\ncompiler ", "\nCUDA library "}) {
    EXPECT_EQ(count(version.out, part), 1U) << part << "\n" << version.out;
  }
}

TEST(Cli, Doctor) {
  const ProgramResult result = call({"doctor"});
  EXPECT_TRUE(result.exit_code == 0 || result.exit_code == 8) << result.describe();
  EXPECT_EQ(result.exit_code == 8, count(result.out, "FAIL  ") > 0) << result.out;
  for (const char* part : {"processor: ", "  memory: ", "GPUs: ", "open files at once: ",
                           "current folder: ", "local sockets: ", "plot and watch: "}) {
    EXPECT_EQ(count(result.out, part), 1U) << part << "\n" << result.out;
  }
  // What is missing is told with its remedy.
  const ProgramResult few =
      call({"launch", "--nproc-per-node", "1", "sh", "-c", "ulimit -n 100; exec \"$0\" doctor",
            std::getenv("PENTATRON_BIN")});
  EXPECT_EQ(few.exit_code, 8) << few.describe();
  EXPECT_NE(few.out.find("ulimit -n 4096"), std::string::npos) << few.out;
  // What it would be in a run of several, and variables that make no sense.
  EXPECT_EQ(count(result.out, "launcher: none"), 1U) << result.out;
  const ProgramResult ranked = run_program({.words = {"doctor"},
                                            .environment = {{"SLURM_PROCID", "1"},
                                                            {"SLURM_NTASKS", "2"},
                                                            {"SLURM_NNODES", "2"},
                                                            {"SLURM_STEP_NODELIST", "n[3-4]"}}});
  EXPECT_EQ(count(ranked.out, "launcher: rank 1 of 2 by SLURM_PROCID, ranks meet at n3:29500"), 1U)
      << ranked.out;
  const ProgramResult wrong = run_program({.words = {"doctor"}, .environment = {{"RANK", "0"}}});
  EXPECT_EQ(wrong.exit_code, 8) << wrong.describe();
  EXPECT_EQ(count(wrong.out, "WORLD_SIZE is not"), 1U) << wrong.out;
}

// The shell itself completes, with the script that the program prints.
TEST(Cli, BashCompletion) {
  const auto complete = [](const std::string& words, int place) {
    const std::string script = fmt::format(
        "source <(\"$0\" completion bash); PATH=$(dirname \"$0\"):$PATH; COMP_WORDS=({}); "
        "COMP_CWORD={}; _pentatron; echo \"${{COMPREPLY[*]}}\"",
        words, place);
    const ProgramResult result = call(
        {"launch", "--nproc-per-node", "1", "bash", "-c", script, std::getenv("PENTATRON_BIN")});
    EXPECT_TRUE(result.ok()) << result.describe();
    return without_last_newlines(result.out);
  };
  EXPECT_EQ(complete("pentatron pret", 1), "pretrain_gpt");
  EXPECT_EQ(complete("pentatron pretrain_gpt --num-laye", 2),
            "--num-layers --num-layers-at-start-in-bf16 --num-layers-at-end-in-bf16 "
            "--num-layers-per-virtual-pipeline-stage");
  EXPECT_EQ(complete("pentatron pretrain_gpt --normalization R", 3), "RMSNorm");
  EXPECT_EQ(complete("pentatron generate --max-new", 2), "--max-new-tokens");
  EXPECT_EQ(call({"completion", "tcsh"}).exit_code, 2);
}

// groff reads the page without a warning, where it is installed.
TEST(Cli, ManPage) {
  const ProgramResult page = call({"man"});
  EXPECT_TRUE(page.ok()) << page.describe();
  EXPECT_TRUE(page.out.starts_with(".TH PENTATRON 1 ")) << page.out.substr(0, 100);
  const ProgramResult read =
      call({"launch", "--nproc-per-node", "1", "sh", "-c",
            "command -v groff >/dev/null || { echo no groff; exit 0; }; \"$0\" man | groff -man "
            "-Tutf8 -ww 2>&1 >/dev/null",
            std::getenv("PENTATRON_BIN")});
  EXPECT_TRUE(read.ok()) << read.describe();
  if (read.out.find("no groff") != std::string::npos) GTEST_SKIP() << "groff is not installed";
  EXPECT_EQ(read.out, "");
}

// The example that --help begins with runs as it stands.
TEST(Cli, HelpBeginsWithWhatARunNeeds) {
  const ProgramResult help = call({"pretrain_gpt", "--help"});
  EXPECT_TRUE(help.out.starts_with("usage: pentatron pretrain_gpt [options]\n\nA run needs:\n"))
      << help.out;
  const std::size_t begin = help.out.find("  pentatron pretrain_gpt --num-layers");
  ASSERT_NE(begin, std::string::npos) << help.out;
  std::string example = help.out.substr(begin, help.out.find("\n\n", begin) - begin);
  std::vector<std::string> words;
  std::istringstream text(example);
  for (std::string word; text >> word;) {
    if (word != "\\" && word != "pentatron") words.push_back(word);
  }
  const ProgramResult run = call(words);
  EXPECT_TRUE(run.ok()) << run.describe();
  EXPECT_EQ(count(run.out, " iteration       20/      20 |"), 1U) << run.out;
}

// A reader that has enough is no error; a full disk is one.
TEST(Cli, ClosedPipeIsQuiet) {
  const auto shell = [](const std::string& script) {
    return call(
        {"launch", "--nproc-per-node", "1", "bash", "-c", script, std::getenv("PENTATRON_BIN")});
  };
  const ProgramResult head =
      shell("\"$0\" options --markdown | head -n 1; echo \"${PIPESTATUS[0]}\"");
  EXPECT_TRUE(head.ok()) << head.describe();
  EXPECT_EQ(head.err, "") << head.err;
  EXPECT_TRUE(head.out.ends_with("\n141\n")) << head.out;
  const ProgramResult full = shell("\"$0\" options --markdown > /dev/full");
  EXPECT_NE(full.err.find("error: the result could not be written"), std::string::npos)
      << full.describe();
}

TEST(Cli, OnlyNearNamesAreSuggested) {
  for (const char* far : {"foo", "x", "serve"}) {
    const ProgramResult refused = call({far});
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_EQ(refused.err.find("did you mean"), std::string::npos) << refused.err;
    EXPECT_TRUE(refused.err.starts_with("error: no command named ")) << refused.err;
  }
  EXPECT_NE(call({"generat"}).err.find("did you mean generate?"), std::string::npos);
  EXPECT_NE(call({"evalaute"}).err.find("did you mean evaluate?"), std::string::npos);
  EXPECT_EQ(call({"generate", "--zzz", "1"}).err.find("did you mean"), std::string::npos);
}

TEST(Cli, UnknownCommand) {
  expect_refusal(call({"pretrain_gtp"}), 2, {"'pretrain_gtp'", "pretrain_gpt"});
  const ProgramResult nothing = call({});
  EXPECT_EQ(nothing.exit_code, 2) << nothing.describe();
}

TEST(Cli, UnknownOption) {
  expect_refusal(call(base().with("--num-layer", 2).words("pretrain_gpt")), 2,
                 {"unknown", "--num-layer", "did you mean --num-layers"});
  expect_refusal(call({"generate", "--promt", "x"}), 2, {"--promt", "--prompt", "--load"});
  expect_refusal(call({"checkpoint", "inspect"}), 2, {"FOLDER"});
  expect_refusal(call({"checkpoint", "shred", new_folder().string()}), 2, {"shred", "verify"});
  expect_refusal(call({"preprocess_data", "--workers"}), 2, {"--workers", "--input"});
}

TEST(Cli, CheckOptions) {
  const ProgramResult good = call(base().with("--check-options").words("pretrain_gpt"));
  EXPECT_TRUE(good.ok()) << good.describe();
  EXPECT_EQ(count(good.out, "global batch 4 = micro batch 2 x data 1 x 2 accumulation steps"), 1U);
  EXPECT_EQ(count(good.out, "] iteration "), 0U);
  // What the run would come to, and files that are not there.
  EXPECT_EQ(count(good.out, "files       2 checked, 0 missing\n"), 1U) << good.out;
  EXPECT_EQ(count(good.out, "parameters  "), 1U) << good.out;
  EXPECT_EQ(count(good.out, " optimizer state\n"), 1U) << good.out;
  EXPECT_EQ(count(good.out, "run         3 steps, 12 samples, 192 tokens, "), 1U) << good.out;
  const ProgramResult lost = call(base()
                                      .with("--data-path", "nowhere/corpus")
                                      .with("--save", "/dev/null")
                                      .with("--save-interval", 1)
                                      .with("--check-options")
                                      .words("pretrain_gpt"));
  EXPECT_EQ(lost.exit_code, 4) << lost.describe();
  EXPECT_EQ(count(lost.out, "missing: --data-path nowhere/corpus.idx: there is no such file"), 1U)
      << lost.out;
  EXPECT_EQ(count(lost.out, "missing: --save /dev/null: it is not a folder"), 1U) << lost.out;
  const ProgramResult bad = call(base()
                                     .with("--check-options")
                                     .with("--seq-length", 99)
                                     .with("--num-attention-heads", 3)
                                     .words("pretrain_gpt"));
  EXPECT_EQ(bad.exit_code, 2) << bad.describe();
  EXPECT_EQ(count(bad.out, "--seq-length 99"), 1U) << bad.out;
  EXPECT_EQ(count(bad.out, "--num-attention-heads 3"), 1U) << bad.out;
  // What only the grid of ranks refuses, and what only the vocabulary does.
  const ProgramResult grid = call(base()
                                      .with("--check-options")
                                      .with("--distributed-backend", "threads")
                                      .with("--world-size", 4)
                                      .with("--micro-batch-size", 1)
                                      .with("--use-distributed-optimizer")
                                      .with("--num-distributed-optimizer-instances", 3)
                                      .words("pretrain_gpt"));
  EXPECT_EQ(grid.exit_code, 2) << grid.describe();
  EXPECT_EQ(count(grid.out, "--num-distributed-optimizer-instances 3 does not divide the 4"), 1U)
      << grid.out;
  const ProgramResult padding =
      call(base().with("--check-options").with("--padded-vocab-size", 10).words("pretrain_gpt"));
  EXPECT_EQ(padding.exit_code, 2) << padding.describe();
  EXPECT_EQ(count(padding.out, "--padded-vocab-size 10 must be at least the vocabulary of 64"), 1U)
      << padding.out;
}

TEST(Cli, OptionsAsMarkdown) {
  const char* source = std::getenv("PENTATRON_SOURCE_DIR");
  ASSERT_NE(source, nullptr);
  const ProgramResult printed = call({"options", "--markdown"});
  EXPECT_TRUE(printed.ok()) << printed.describe();
  EXPECT_EQ(without_last_newlines(printed.out),
            without_last_newlines(read_file(fs::path(source) / "docs" / "megatron_options.md")));
}

TEST(Cli, RefusedAndAlwaysSoOptions) {
  const TinyRun always = train(base().with("--use-mcore-models").with("--manual-gc"));
  const std::string said = always.program.out + always.program.err;
  EXPECT_EQ(count(said, "always so here"), 1U) << always.program.describe();
  EXPECT_EQ(count(said, "--use-mcore-models"), 1U) << always.program.describe();
  EXPECT_EQ(count(said, "--manual-gc"), 1U) << always.program.describe();
  EXPECT_EQ(always.losses(), train(base()).losses());
  const TinyRun planned = try_train(base().with("--num-experts", 4));
  EXPECT_TRUE(planned.program.exit_code == 2 || planned.program.exit_code == 8)
      << planned.program.describe();
  EXPECT_GE(count(planned.program.err, "--num-experts"), 1U) << planned.program.err;
}

TEST(Cli, PlotDrawsTheCurve) {
  const TinyRun run = train(base().with("--eval-iters", 1).with("--eval-interval", 1));
  const fs::path picture = new_folder() / "loss.svg";
  const ProgramResult drawn =
      call({"plot", run.metrics_file.string(), "--output", picture.string()});
  EXPECT_TRUE(drawn.ok()) << drawn.describe();
  const std::string svg = read_file(picture);
  EXPECT_EQ(count(svg, "<svg"), 1U);
  EXPECT_EQ(count(svg, "</svg>"), 1U);
}

TEST(Cli, PlotComparesRunsAsPng) {
  const TinyRun one = train(base());
  const TinyRun two = train(base().with("--lr", "3e-2"));
  const fs::path folder = new_folder();
  const ProgramResult drawn =
      call({"plot", one.metrics_file.string(), two.metrics_file.string(), "--metric", "grad_norm",
            "--log-scale", "--smoothing", "0.5", "--width", "500", "--height", "300", "--output",
            (folder / "norms.png").string()});
  EXPECT_TRUE(drawn.ok()) << drawn.describe();
  const std::string png = read_file(folder / "norms.png");
  EXPECT_EQ(png.substr(0, 8), "\x89PNG\r\n\x1a\n");
  EXPECT_EQ(png.substr(16, 8), std::string("\0\0\1\xf4\0\0\1\x2c", 8));  // 500 x 300
  expect_refusal(call({"plot"}), 2, {"expected at least 1 (METRICS.jsonl...)"});
  expect_refusal(call({"plot", one.metrics_file.string(), "--smoothing", "1"}), 2, {"--smoothing"});
}

TEST(Cli, WatchServesUntilItIsStopped) {
  const fs::path folder = new_folder();
  const TinyRun run = train(base().with("--metrics-file", (folder / "tiny.jsonl").string()));
  std::string page;
  std::string runs;
  bool asked = false;
  const ProgramResult result = run_program(
      {.words = {"watch", folder.string(), "--port", "0"},
       .observe = [&](const RunningProgram& program) {
         const std::string start = "http://127.0.0.1:";
         const std::size_t at = program.out.find(start);
         if (asked || at == std::string::npos || program.out.find('\n', at) == std::string::npos) {
           return;
         }
         asked = true;
         httplib::Client client("127.0.0.1", std::stoi(program.out.substr(at + start.size())));
         if (const auto answer = client.Get("/")) page = answer->body;
         if (const auto answer = client.Get("/api/runs")) runs = answer->body;
         ::kill(program.pid, SIGINT);
       }});
  EXPECT_TRUE(result.ok()) << result.describe();
  EXPECT_NE(page.find("<title>pentatron watch</title>"), std::string::npos) << page;
  const nlohmann::json answer = nlohmann::json::parse(runs);
  ASSERT_EQ(answer["runs"].size(), 1U);
  EXPECT_EQ(answer["runs"][0]["name"], "tiny");
  EXPECT_EQ(answer["runs"][0]["num_records"], run.losses().size());
  expect_refusal(call({"watch", (folder / "none").string(), "--port", "0"}), 4, {"is no folder"});
  expect_refusal(call({"watch", folder.string(), "--port", "65536"}), 2, {"--port 65536"});
}

}  // namespace pentatron::functional
