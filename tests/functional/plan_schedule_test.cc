// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include <nlohmann/json.hpp>

#include "tests/functional/tiny_run.h"

// `pentatron plan_schedule`: what it prints and writes.
namespace pentatron::functional {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> plan(std::vector<std::string> more) {
  std::vector<std::string> words{"plan_schedule", "--pipeline-model-parallel-size", "4",
                                 "--num-micro-batches", "8"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// What the program prints to a terminal of 80 columns.
std::string on_terminal(std::vector<std::string> words, const char* no_colour) {
  words.insert(words.begin(), std::getenv("PENTATRON_BIN"));
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const winsize size{.ws_row = 24, .ws_col = 80, .ws_xpixel = 0, .ws_ypixel = 0};
  int terminal = -1;
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, &size);
  if (child == 0) {
    ::setenv("NO_COLOR", no_colour, 1);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  std::string text;
  char bytes[4096];
  // Its end is an error (EIO) once the program has gone.
  for (ssize_t n = 0; (n = ::read(terminal, bytes, sizeof(bytes))) > 0;) {
    text.append(bytes, static_cast<std::size_t>(n));
  }
  ::close(terminal);
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << text;
  return text;
}

}  // namespace

TEST(PlanSchedule, DrawsComparesAndChecks) {
  const ProgramResult result = call(plan({"--pipeline-schedule", "zb-h1"}));
  ASSERT_TRUE(result.ok()) << result.describe();
  for (const char* part : {"zb-h1: 4 ranks, 4 stages, 8 micro-batches, time 27, bubble 11.1%\n",
                           "\nrank 0   F0 F1 F2 F3", "\nrank 3   ", "no deadlock: all ", "\n1f1b ",
                           "\ngpipe ", "\nzb-h1 ", "\nzb-auto "}) {
    EXPECT_EQ(count(result.out, part), 1U) << part << "\n" << result.out;
  }
  EXPECT_EQ(count(result.out, "W0 "), 4U) << "one a rank\n" << result.out;
  EXPECT_EQ(count(result.out, "\033"), 0U) << "no terminal, no colour";
  // (p - 1) (F + B - W) of 8 * 3 + 3.
  EXPECT_EQ(count(result.out, "zb-h1           27    11.1%"), 1U) << result.out;
}

TEST(PlanSchedule, ColourAndWidthOfATerminal) {
  const std::string coloured = on_terminal(plan({}), "");
  EXPECT_GT(count(coloured, "\033[44;97mF0"), 0U) << coloured;
  const std::string plain = on_terminal(plan({}), "1");
  EXPECT_EQ(count(plain, "\033"), 0U) << plain;
  const auto first_rank = [](const std::string& text) {
    const std::size_t begin = text.find("\nrank 0 ") + 1;
    return text.substr(begin, text.find_first_of("\r\n", begin) - begin);
  };
  EXPECT_EQ(first_rank(plain).size(), 80U) << plain;
  EXPECT_EQ(first_rank(on_terminal(plan({"--width", "50"}), "1")).size(), 50U);
}

TEST(PlanSchedule, WritesJsonAndSvg) {
  const fs::path folder = new_folder();
  const ProgramResult result =
      call(plan({"--num-virtual-stages-per-pipeline-rank", "2", "--json",
                 (folder / "plan.json").string(), "--svg", (folder / "plan.svg").string()}));
  ASSERT_TRUE(result.ok()) << result.describe();
  const nlohmann::json json = nlohmann::json::parse(read_file(folder / "plan.json"));
  EXPECT_EQ(json.at("schedule"), "1f1b");
  EXPECT_EQ(json.at("num_chunks"), 2);
  EXPECT_DOUBLE_EQ(json.at("total_time").get<double>(), 3 * 8 + 3 * 3 / 2.0);
  EXPECT_EQ(json.at("ranks").size(), 4U);
  EXPECT_EQ(json.at("ranks")[0].at("actions").size(), 2U * 2 * 8);
  ASSERT_EQ(json.at("comparison").size(), 4U);
  EXPECT_EQ(json.at("comparison")[2].at("sound"), false) << "zb-h1 runs one stage a rank";
  EXPECT_TRUE(read_file(folder / "plan.svg").starts_with("<svg "));
}

TEST(PlanSchedule, ErrorsNameTheOption) {
  expect_refusal(call({"plan_schedule"}), 2,
                 {"--pipeline-model-parallel-size", "--num-micro-batches", "required"});
  expect_refusal(call(plan({"--pipeline-schedule", "zb"})), 2,
                 {"--pipeline-schedule", "'zb'", "zb-auto"});
  expect_refusal(call(plan({"--pipeline-schedule-costs", "1", "2"})), 2,
                 {"--pipeline-schedule-costs 1 2", "four numbers"});
  expect_refusal(
      call(plan({"--num-virtual-stages-per-pipeline-rank", "2", "--pipeline-schedule", "zb-h1"})),
      2, {"--num-virtual-stages-per-pipeline-rank", "one stage a rank"});
  expect_refusal(call(plan({"--pipeline-schedule-costs", "1", "1", "1", "-0.5"})), 2,
                 {"--pipeline-schedule-costs 1 1 1 -0.5", "of sending, at least 0"});
  expect_refusal(call(plan({"--microbatch-group-size-per-virtual-pipeline-stage", "4"})), 2,
                 {"--microbatch-group-size-per-virtual-pipeline-stage 4",
                  "--num-virtual-stages-per-pipeline-rank"});
  expect_refusal(call(plan({"--num-micro-batches", "100000"})), 2,
                 {"--num-micro-batches 100000", "at most 16384"});
  expect_refusal(call(plan({"--decoder-first-pipeline-num-layers", "1"})), 2, {"--num-layers"});
  expect_refusal(call(plan({"--svg", "/no/such/folder/plan.svg"})), 4, {"/no/such/folder"});
  EXPECT_EQ(count(call({"plan_schedule", "--help"}).out, "Example:"), 1U);
}

}  // namespace pentatron::functional
