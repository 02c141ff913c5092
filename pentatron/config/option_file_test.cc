// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/option_file.h"

#include <gtest/gtest.h>

#include "pentatron/base/error.h"

namespace pentatron::config {
namespace {

std::string error_of(const std::string& text) {
  try {
    (void)parse_yaml_options(text, "run.yaml");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return error.what();
  }
  return "no error";
}

TEST(OptionFile, AliasesAreFollowed) {
  const auto values = parse_yaml_options("a: &a {lr: 1}\nb: *a\nc: [1, 2]\n", "run.yaml");
  ASSERT_EQ(values.size(), 3U);
  EXPECT_EQ(values[1].key, "lr");
  EXPECT_EQ(values[2].words, (std::vector<std::string>{"1", "2"}));
}

TEST(OptionFile, F14_ASecondDocumentIsRefused) {
  EXPECT_NE(error_of("lr: 1\n---\nlr: 2\n").find("a second document"), std::string::npos)
      << error_of("lr: 1\n---\nlr: 2\n");
  for (const char* one : {"---\nlr: 1\n", "lr: 1\n...\n", "lr: 1\n---\n"}) {
    ASSERT_EQ(parse_yaml_options(one, "run.yaml").size(), 1U) << one;
  }
}

// A few hundred bytes whose aliases stand for 20^11 sections, or for 4 million words.
TEST(OptionFile, AliasesCannotMultiplyWithoutBound) {
  std::string sections = "v0: &v0 {}\n";
  for (int level = 1; level < 12; ++level) {
    sections += "v" + std::to_string(level) + ": &v" + std::to_string(level) + " {";
    for (int k = 0; k < 20; ++k) {
      sections += "k" + std::to_string(k) + ": *v" + std::to_string(level - 1) + ", ";
    }
    sections += "}\n";
  }
  EXPECT_NE(error_of(sections).find("more than 10000 values"), std::string::npos)
      << error_of(sections);
  std::string lists = "v: &v [1";
  for (int k = 1; k < 2000; ++k) lists += ", 1";
  lists += "]\n";
  for (int k = 0; k < 2000; ++k) lists += "k" + std::to_string(k) + ": *v\n";
  EXPECT_NE(error_of(lists).find("more than 10000 values"), std::string::npos) << error_of(lists);
}

}  // namespace
}  // namespace pentatron::config
