// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <map>
#include <random>
#include <regex>
#include <set>

#include "tests/functional/tiny_run.h"
#include "tests/functional/trained_bpe.h"

// Ctrl-C at any moment: what stands under a final name is whole, and no other name stays.
namespace pentatron::functional {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using Words = std::vector<std::string>;
using Files = std::map<std::string, std::string>;  // path below the folder -> content

// A call of the program that writes below a folder.
struct Subject {
  std::string name;
  std::function<Words(const fs::path&)> words;
  // What stands in the folder before; nothing: it is empty.
  fs::path start = {};
  // Given the folder, what was there before, and what an undisturbed run leaves.
  std::function<void(const fs::path&, const Files&, const Files&)> check;
  int signal = SIGINT;
  bool unnamed_files = true;
};

Files files_of(const fs::path& folder) {
  Files files;
  if (!fs::exists(folder)) return files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    const std::string name = fs::relative(entry.path(), folder).string();
    files[name] = entry.is_regular_file() ? read_file(entry.path()) : std::string();
  }
  return files;
}

// iter_0000012/rank_00000.safetensors -> iter_#/rank_#.safetensors
std::set<std::string> kinds_of_names(const Files& files) {
  static const std::regex kDigits("[0-9]+");
  std::set<std::string> names;
  for (const auto& [name, content] : files) names.insert(std::regex_replace(name, kDigits, "#"));
  return names;
}

fs::path fresh(const Subject& subject) {
  const fs::path folder = new_folder();
  if (!subject.start.empty()) fs::copy(subject.start, folder, fs::copy_options::recursive);
  return folder;
}

ProgramRequest request_of(const Subject& subject, const fs::path& folder) {
  ProgramRequest request;
  request.words = subject.words(folder);
  if (!subject.unnamed_files) request.environment = {{"PENTATRON_FAULT_NO_UNNAMED", "1"}};
  return request;
}

std::mt19937& random_source() {
  static std::mt19937 source = [] {
    const auto seed = static_cast<unsigned>(Clock::now().time_since_epoch().count());
    std::cout << "seed " << seed << "\n";
    return std::mt19937(seed);
  }();
  return source;
}

// The moments are spread evenly over the run's time, each moved at random within its share.
void interrupt(const Subject& subject, int times) {
  SCOPED_TRACE(subject.name);
  const fs::path whole = fresh(subject);
  const Files before = files_of(whole);
  const Clock::time_point begun = Clock::now();
  const ProgramResult undisturbed = run_program(request_of(subject, whole));
  auto length = Clock::now() - begun;
  ASSERT_TRUE(undisturbed.ok()) << undisturbed.describe();
  const Files after = files_of(whole);
  std::set<std::string> allowed = kinds_of_names(before);
  allowed.merge(kinds_of_names(after));

  int stopped = 0;
  std::uniform_real_distribution<double> share(0, 1);
  for (int i = 0; i < times; ++i) {
    const fs::path folder = fresh(subject);
    const auto span = std::chrono::duration<double>(length) / times;
    const auto moment = span * (i + share(random_source()));
    bool sent = false;
    ProgramRequest request = request_of(subject, folder);
    const Clock::time_point start = Clock::now();
    request.observe = [&](const RunningProgram& program) {
      if (!sent && Clock::now() - start >= moment) {
        sent = ::kill(program.pid, subject.signal) == 0;
      }
    };
    const ProgramResult run = run_program(request);
    const bool ended = run.signal == subject.signal || run.exit_code == 128 + subject.signal;
    EXPECT_TRUE(ended || run.ok()) << run.describe();
    EXPECT_FALSE(run.left_children || run.timed_out) << run.describe();
    stopped += ended ? 1 : 0;
    // The machine has become faster: later moments would all come too late.
    if (run.ok()) length = std::min(length, Clock::now() - start);
    for (const std::string& name : kinds_of_names(files_of(folder))) {
      EXPECT_TRUE(allowed.contains(name)) << "left over: " << name << "\n" << run.describe();
    }
    subject.check(folder, before, after);
    fs::remove_all(folder);
  }
  std::cout << subject.name << ": " << stopped << " of " << times << " stopped, "
            << std::chrono::duration<double>(length).count() << " s undisturbed\n";
  EXPECT_GE(stopped, times / 3);
}

// The named files belong together: all as before, or all as after.
void expect_old_or_new(const Files& now, const Files& before, const Files& after,
                       const std::vector<std::string>& names) {
  const auto only = [&names](const Files& files) {
    Files some;
    for (const std::string& name : names) {
      if (const auto found = files.find(name); found != files.end()) some.insert(*found);
    }
    return some;
  };
  EXPECT_TRUE(only(now) == only(before) || only(now) == only(after));
  EXPECT_FALSE(only(before) == only(after));
}

std::string some_text(int lines, int salt) {
  std::string text;
  std::mt19937 random(static_cast<unsigned>(salt));
  for (int i = 0; i < lines; ++i) {
    text += "line";
    for (int word = 0; word < 12; ++word) text += " w" + std::to_string(random() % 3000);
    text += "\n";
  }
  return text;
}

fs::path jsonl(int documents, int salt) {
  const fs::path path = new_folder() / "in.jsonl";
  std::string text;
  std::istringstream lines(some_text(documents, salt));
  for (std::string line; std::getline(lines, line);) text += "{\"text\": \"" + line + "\"}\n";
  write_file(path, text);
  return path;
}

fs::path bpe_folder() {
  static const fs::path kFolder = trained_bpe(some_text(200, 1), 300);
  return kFolder;
}

Words preprocess_words(const fs::path& input, const fs::path& folder) {
  return {"preprocess_data",
          "--input",
          input.string(),
          "--output-prefix",
          folder / "out",
          "--tokenizer-type",
          "GPT2BPETokenizer",
          "--vocab-file",
          bpe_folder() / "vocab.json",
          "--merge-file",
          bpe_folder() / "merges.txt",
          "--workers",
          "2",
          "--force"};
}

void check_corpus(const fs::path& folder, const Files& before, const Files& after) {
  const std::vector<std::string> pair = {"out_text_document.bin", "out_text_document.idx"};
  expect_old_or_new(files_of(folder), before, after, pair);
  if (!fs::exists(folder / pair[0])) return;
  const ProgramResult inspected = call({"inspect_dataset", folder / "out_text_document"});
  EXPECT_TRUE(inspected.ok()) << inspected.describe();
}

void check_vocabulary(const fs::path& folder, const Files& before, const Files& after) {
  expect_old_or_new(files_of(folder), before, after, {"vocab.json", "merges.txt"});
}

Options saving_always(const fs::path& folder) {
  return saving(base()
                    .with("--train-iters", 8)
                    .with("--data-cache-path", (folder / "cache").string())
                    .with("--metrics-file", (folder / "metrics.jsonl").string()),
                folder / "save", 1);
}

// Every file of an index cache and of a checkpoint is that of `whole`, a run which kept all its
// checkpoints; every iteration has its manifest, the tracker names one, and that one verifies.
void check_training(const fs::path& folder, const Files& whole) {
  std::set<int> iterations;
  for (const auto& [name, content] : files_of(folder)) {
    const bool values = name.ends_with(".safetensors");
    if (values || name.starts_with("cache/")) {
      const auto expected = whole.find(name);
      ASSERT_NE(expected, whole.end()) << name;
      EXPECT_TRUE(content == expected->second) << name << " is not whole";
    }
    std::smatch match;
    if (std::regex_match(name, match, std::regex("save/iter_([0-9]+)"))) {
      iterations.insert(std::stoi(match[1]));
      EXPECT_TRUE(fs::exists(folder / name / "manifest.json")) << name;
      for (const auto& [other, unused] : whole) {
        const bool in_it = other.starts_with(name + "/");
        EXPECT_TRUE(!in_it || fs::exists(folder / other)) << other << " is missing";
      }
    }
  }
  const fs::path tracker = folder / "save" / "latest_checkpointed_iteration.txt";
  EXPECT_EQ(fs::exists(tracker), !iterations.empty());
  if (iterations.empty()) return;
  EXPECT_TRUE(iterations.contains(std::stoi(read_file(tracker)))) << read_file(tracker);
  const ProgramResult verified = call({"checkpoint", "verify", folder / "save"});
  EXPECT_TRUE(verified.ok() && verified.err.empty()) << verified.describe();
}

using OptionsOf = std::function<Options(const fs::path&)>;

// `prefix` before pretrain_gpt's own words.
Subject training(const std::string& name, const Words& prefix, const OptionsOf& options) {
  const auto words_of = [prefix](const Options& all) {
    Words words = prefix;
    const Words command = all.words("pretrain_gpt");
    words.insert(words.end(), command.begin(), command.end());
    return words;
  };
  const fs::path folder = new_folder();
  const ProgramResult run = call(words_of(options(folder).without("--keep-checkpoints")));
  EXPECT_TRUE(run.ok()) << run.describe();
  return {.name = name,
          .words = [=](const fs::path& to) { return words_of(options(to)); },
          .check = [whole = files_of(folder)](const fs::path& to, const Files&,
                                              const Files&) { check_training(to, whole); }};
}

}  // namespace

TEST(Interrupt, PreprocessData) {
  const fs::path input = jsonl(4000, 2);
  Subject subject{.name = "preprocess_data",
                  .words = [&](const fs::path& folder) { return preprocess_words(input, folder); },
                  .check = check_corpus};
  interrupt(subject, 8);
  subject.name = "preprocess_data, with named temporary files";
  subject.unnamed_files = false;
  interrupt(subject, 8);
  // In place of an older pair.
  subject.start = new_folder();
  ASSERT_TRUE(call(preprocess_words(jsonl(50, 3), subject.start)).ok());
  subject.name = "preprocess_data --force, SIGTERM";
  subject.signal = SIGTERM;
  interrupt(subject, 8);
  subject.unnamed_files = true;
  interrupt(subject, 8);
}

TEST(Interrupt, TrainTokenizer) {
  const fs::path text = new_folder() / "text.txt";
  write_file(text, some_text(2000, 4));
  const auto words = [&](const fs::path& folder, const char* tokens) {
    return Words{"train_tokenizer", "--input",      text.string(), "--vocab-size", tokens,
                 "--output",        folder.string()};
  };
  Subject subject{.name = "train_tokenizer",
                  .words = [&](const fs::path& folder) { return words(folder, "600"); },
                  .check = check_vocabulary};
  interrupt(subject, 6);
  subject.name = "train_tokenizer in place of another";
  subject.start = new_folder();
  ASSERT_TRUE(call(words(subject.start, "300")).ok());
  interrupt(subject, 6);
  subject.unnamed_files = false;
  interrupt(subject, 6);
}

TEST(Interrupt, Pretrain) {
  Subject subject = training("pretrain_gpt", {}, saving_always);
  interrupt(subject, 10);
  subject.name = "pretrain_gpt, with named temporary files";
  subject.unnamed_files = false;
  interrupt(subject, 8);
}

TEST(Interrupt, PretrainThatRemovesOlderCheckpoints) {
  interrupt(training("pretrain_gpt --keep-checkpoints 1", {},
                     [](const fs::path& folder) {
                       return saving_always(folder).with("--keep-checkpoints", 1);
                     }),
            12);
}

// Every save takes the place of an equal one of the same iteration.
TEST(Interrupt, PretrainOverOlderCheckpoints) {
  Subject subject = training("pretrain_gpt over older checkpoints", {}, saving_always);
  subject.start = new_folder();
  ASSERT_TRUE(call(saving_always(subject.start).words("pretrain_gpt")).ok());
  interrupt(subject, 12);
}

TEST(Interrupt, LaunchedProcesses) {
  interrupt(training("launch pretrain_gpt", {"launch", "--nproc-per-node", "2"},
                     [](const fs::path& folder) {
                       return saving_always(folder).with("--use-distributed-optimizer");
                     }),
            12);
}

// What SIGKILL left under a temporary name goes with the next write of the same file; a name that a
// living process holds does not.
TEST(Interrupt, LeftoversOfKilledRunsGo) {
  const fs::path input = jsonl(200, 5);
  const fs::path folder = new_folder();
  write_file(folder / "out_text_document.bin.tmp.4000001.0", "left by a run that was killed");
  write_file(folder / "out_text_document.bin.tmp.notes", "of somebody else");
  ASSERT_TRUE(call(preprocess_words(input, folder)).ok());
  EXPECT_FALSE(fs::exists(folder / "out_text_document.bin.tmp.4000001.0"));
  EXPECT_TRUE(fs::exists(folder / "out_text_document.bin.tmp.notes"));
}

}  // namespace pentatron::functional
