// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/functional/tiny_run.h"

// What can be wrong before the first step.
namespace pentatron::functional {
namespace {

namespace fs = std::filesystem;

// The program through a shell that closes some of the descriptors 0 to 2.
ProgramResult call_without(const std::string& closed, const std::vector<std::string>& words) {
  std::vector<std::string> all{"launch",
                               "--nproc-per-node",
                               "1",
                               "sh",
                               "-c",
                               "exec \"$0\" \"$@\" " + closed,
                               std::getenv("PENTATRON_BIN")};
  all.insert(all.end(), words.begin(), words.end());
  return run_program({.words = all});
}

constexpr const char* kClosed[] = {"<&-",      ">&-",      "2>&-",        "<&- >&-",
                                   "<&- 2>&-", ">&- 2>&-", "<&- >&- 2>&-"};

std::string numbers() {
  std::string text;
  for (int i = 0; i < 200; ++i)
    text += fmt::format("{{\"text\": \"{} {} {}\"}}\n", i % 63, 7, i % 5);
  return text;
}

}  // namespace

// A closed descriptor's number went to the next file, and log lines into it.
TEST(Faults, F1_PreprocessDataWithClosedDescriptors) {
  const fs::path folder = new_folder();
  write_file(folder / "in.jsonl", numbers() + "not JSON\n");
  const auto preprocess = [&](const std::string& name) {
    return std::vector<std::string>{"preprocess_data",
                                    "--input",
                                    (folder / "in.jsonl").string(),
                                    "--output-prefix",
                                    (folder / name).string(),
                                    "--tokenizer-type",
                                    "NullTokenizer",
                                    "--vocab-size",
                                    "63",
                                    "--skip-bad-lines"};
  };
  ASSERT_TRUE(call(preprocess("whole")).ok());
  for (std::size_t i = 0; i < std::size(kClosed); ++i) {
    const std::string name = fmt::format("closed{}", i);
    const ProgramResult result = call_without(kClosed[i], preprocess(name));
    EXPECT_EQ(result.exit_code, 0) << kClosed[i] << result.describe();
    for (const char* extension : {"_text_document.bin", "_text_document.idx"}) {
      EXPECT_EQ(read_file(folder / (name + extension)),
                read_file(folder / ("whole" + std::string(extension))))
          << kClosed[i] << extension;
    }
  }
}

TEST(Faults, F1_TrainingWithClosedDescriptors) {
  const fs::path folder = new_folder();
  const auto words = [&](const std::string& name) {
    return base()
        .with("--metrics-file", (folder / name).string())
        .with("--save", (folder / (name + "_saved")).string())
        .with("--save-interval", 2)
        .words("pretrain_gpt");
  };
  ASSERT_TRUE(call(words("whole")).ok());
  for (const char* closed : {">&- 2>&-", "<&- >&- 2>&-"}) {
    const std::string name = fmt::format("closed{}", std::string(closed).size());
    const ProgramResult result = call_without(closed, words(name));
    EXPECT_EQ(result.exit_code, 0) << closed << result.describe();
    EXPECT_EQ(timeless_lines(folder / name), timeless_lines(folder / "whole")) << closed;
    EXPECT_EQ(state_hash(folder / (name + "_saved")), state_hash(folder / "whole_saved"));
  }
}

}  // namespace pentatron::functional
