// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <utility>

#include "tests/functional/tiny_run.h"

// Launch scripts as users have them (testdata/launch), through --check-options: every option that
// is refused is refused with the right word, and nothing else is.
namespace pentatron::functional {
namespace {

namespace fs = std::filesystem;

struct Checked {
  int exit_code = -1;
  std::vector<std::string> problems;
};

fs::path source_folder() { return std::getenv("PENTATRON_SOURCE_DIR"); }

// Exit code and standard output and error of a shell command.
std::pair<int, std::string> run_shell(const std::string& command) {
  std::FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("popen");
  std::string text;
  char buffer[4096];
  while (std::fgets(buffer, sizeof(buffer), pipe) != nullptr) text += buffer;
  return {WEXITSTATUS(::pclose(pipe)), text};
}

// Runs a script with --check-options and `more`, as rank 0 of eight.
Checked check_script(const std::string& name, const std::string& more = "") {
  const fs::path script = source_folder() / "tests/functional/testdata/launch" / name;
  const std::string environment =
      "WORLD_SIZE=8 RANK=0 LOCAL_RANK=0 MASTER_ADDR=localhost MASTER_PORT=29511 DATA=corpus "
      "VOCAB=vocab.json MERGES=merges.txt CHECKPOINTS=checkpoints LOGS=logs TOKENIZER=tokenizer ";
  const std::string command = environment + "'" + script.string() + "' '" +
                              std::getenv("PENTATRON_BIN") + "' --check-options " + more;
  const auto [exit_code, text] = run_shell(command);
  Checked result;
  result.exit_code = exit_code;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("  ")) result.problems.push_back(line.substr(2));
  }
  return result;
}

// Each expected text begins exactly one problem, and there are no others.
void expect_problems(const Checked& checked, const std::vector<std::string>& expected) {
  EXPECT_EQ(checked.exit_code, 2);
  for (const std::string& begin : expected) {
    const auto matches =
        std::count_if(checked.problems.begin(), checked.problems.end(),
                      [&](const std::string& problem) { return problem.starts_with(begin); });
    EXPECT_EQ(matches, 1) << begin;
  }
  for (const std::string& problem : checked.problems) {
    EXPECT_TRUE(std::any_of(expected.begin(), expected.end(),
                            [&](const std::string& begin) { return problem.starts_with(begin); }))
        << "not expected: " << problem;
  }
}

}  // namespace

TEST(LaunchScripts, Gpt3_345M) {
  // Two options of old versions; the tokenizer is the one that training takes by default.
  expect_problems(check_script("gpt3_345m.sh"), {"unknown option '--data-impl'",
                                                 "--checkpoint-activations: not supported: removed "
                                                 "spelling of --recompute-granularity full"});
}

TEST(LaunchScripts, Llama3_8BInFp8) {
  expect_problems(check_script("llama3_8b_fp8.sh"), {"--fp8-param-gather: not supported yet: "});
}

TEST(LaunchScripts, AUsersLlama2_7B) {
  expect_problems(check_script("user_llama2_7b.sh"),
                  {"unknown option '--valid-path'",
                   "--dataloader-type 'external': this value does not work here"});
}

// tools/check_option_lists.py counts lists and ranks what blocks them.
TEST(LaunchScripts, ToolRanksWhatBlocksLists) {
  const auto [exit_code, text] =
      run_shell("python3 '" + (source_folder() / "tools/check_option_lists.py").string() +
                "' --program '" + std::getenv("PENTATRON_BIN") + "' '" +
                (source_folder() / "tests/functional/testdata/option_lists").string() + "'");
  EXPECT_EQ(exit_code, 0) << text;
  EXPECT_TRUE(text.starts_with("2 of 3 lists accepted\n")) << text;
  EXPECT_NE(text.find("     1      1  --data-parallel-random-init\n"), std::string::npos) << text;
}

}  // namespace pentatron::functional
