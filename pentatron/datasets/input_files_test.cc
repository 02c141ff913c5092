// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/input_files.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "pentatron/base/error.h"
#include "pentatron/base/temp_folder.h"
#include "pentatron/datasets/test_corpus.h"

namespace pentatron::datasets {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

class InputFilesTest : public ::testing::Test {
 protected:
  void make(const std::string& name) {
    fs::create_directories((folder_.path() / name).parent_path());
    testing::write_text(folder_.path() / name, "{}\n");
  }
  [[nodiscard]] std::string path(const std::string& name) const {
    return (folder_.path() / name).string();
  }
  Names list(const Names& words, std::string_view txt = "") {
    Names full;
    for (const std::string& word : words) full.push_back(word == "-" ? word : path(word));
    Names names;
    for (const InputFile& file : list_inputs(full, txt)) {
      names.push_back(file.path == "-" ? "-" : fs::relative(file.path, folder_.path()).string());
    }
    return names;
  }
  std::string refusal(const Names& words, std::string_view txt = "",
                      ErrorKind kind = ErrorKind::kConfig) {
    try {
      (void)list(words, txt);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      return error.what();
    }
    ADD_FAILURE() << "accepted";
    return "";
  }
  TempFolder folder_;
};

TEST_F(InputFilesTest, FoldersAndPatternsAreSortedWordsKeepTheirOrder) {
  for (const char* const name :
       {"d/b.jsonl", "d/a.jsonl.gz", "d/sub/c.json.zst", "d/x.bin", "d/.hidden.jsonl",
        "d/.git/e.jsonl", "one.jsonl", "p2.jsonl", "p10.jsonl", "p1.jsonl"}) {
    make(name);
  }
  EXPECT_EQ(list({"one.jsonl", "d"}),
            (Names{"one.jsonl", "d/a.jsonl.gz", "d/b.jsonl", "d/sub/c.json.zst"}));
  EXPECT_EQ(list({"p*.jsonl", "-"}), (Names{"p1.jsonl", "p10.jsonl", "p2.jsonl", "-"}));
  EXPECT_EQ(list({"p[2-9].jsonl", "one.jsonl"}), (Names{"p2.jsonl", "one.jsonl"}));
}

TEST_F(InputFilesTest, ANameWithPatternCharactersIsAName) {
  make("a[1].jsonl");
  make("a1.jsonl");
  EXPECT_EQ(list({"a[1].jsonl"}), Names{"a[1].jsonl"});
}

TEST_F(InputFilesTest, PlainTextNeedsAWord) {
  make("a.txt.gz");
  make("b.jsonl");
  EXPECT_NE(refusal({"a.txt.gz"}).find("--txt-documents line"), std::string::npos);
  EXPECT_NE(refusal({"a.txt.gz"}, "words").find("must be line or file"), std::string::npos);
  EXPECT_NE(refusal({"b.jsonl"}, "line").find("no effect"), std::string::npos);
  const std::vector<InputFile> files =
      list_inputs(Names{path("a.txt.gz"), path("b.jsonl")}, "file");
  EXPECT_EQ(files[0].format, InputFormat::kTextFile);
  EXPECT_EQ(files[1].format, InputFormat::kJsonLines);
  EXPECT_EQ(files[1].bytes, 3U);
}

TEST_F(InputFilesTest, WhatIsNotThereIsNamed) {
  make("a.jsonl");
  fs::create_directories(folder_.path() / "empty");
  EXPECT_NE(refusal({"b.jsonl"}, "", ErrorKind::kIo).find("b.jsonl"), std::string::npos);
  EXPECT_NE(refusal({"b*.jsonl"}).find("no file has such a name"), std::string::npos);
  EXPECT_NE(refusal({"empty"}).find("the folder holds no .jsonl"), std::string::npos);
  EXPECT_NE(refusal({"a.jsonl", "a*.jsonl"}).find("twice"), std::string::npos);
  EXPECT_NE(refusal({"-", "-"}).find("twice"), std::string::npos);
  EXPECT_NE(refusal({}).find("--input is missing"), std::string::npos);
}

}  // namespace
}  // namespace pentatron::datasets
