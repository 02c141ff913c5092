// SPDX-License-Identifier: Apache-2.0
#include "pentatron/families/registry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "pentatron/base/file.h"

namespace pentatron::families {
namespace {

namespace fs = std::filesystem;

fs::path source_folder() {
  const char* root = std::getenv("PENTATRON_SOURCE_DIR");
  return fs::path(root == nullptr ? "." : root) / "pentatron" / "families";
}

// The names in the registry's lines.
std::vector<std::string> lines() {
  constexpr std::string_view kBegin = "PENTATRON_FAMILY(";
  std::vector<std::string> names;
  std::istringstream text(read_text_file(source_folder() / "registry.inc"));
  for (std::string line; std::getline(text, line);) {
    if (!line.starts_with(kBegin)) continue;
    EXPECT_TRUE(line.ends_with(")")) << line;
    names.push_back(line.substr(kBegin.size(), line.size() - kBegin.size() - 1));
  }
  return names;
}

// What a new family of known parts takes: a folder with a source and a page, and a line.
TEST(Registry, AFamilyIsOneFolderAndOneLine) {
  std::vector<std::string> folders;
  for (const fs::directory_entry& entry : fs::directory_iterator(source_folder())) {
    if (entry.is_directory() && entry.path().filename() != "testdata") {
      folders.push_back(entry.path().filename().string());
    }
  }
  std::vector<std::string> listed = lines();
  ASSERT_EQ(families().size(), listed.size());
  for (std::size_t i = 0; i < listed.size(); ++i) EXPECT_EQ(families()[i]->name, listed[i]);
  std::sort(listed.begin(), listed.end());
  std::sort(folders.begin(), folders.end());
  EXPECT_EQ(folders, listed);
  EXPECT_GE(listed.size(), 14U);
}

TEST(Registry, EveryFolderHasOneSourceAndOnePage) {
  constexpr std::ptrdiff_t kPage = 50;  // lines
  for (const std::string& name : lines()) {
    SCOPED_TRACE(name);
    const fs::path folder = source_folder() / name;
    EXPECT_TRUE(fs::is_regular_file(folder / (name + ".cc")));
    EXPECT_TRUE(fs::is_regular_file(folder / (name + ".json")));
    const std::string page = read_text_file(folder / "README.md");
    EXPECT_LE(std::count(page.begin(), page.end(), '\n'), kPage);
    for (const char* part : {"arXiv", "## What differs", "## How to run", "recipes/"}) {
      EXPECT_NE(page.find(part), std::string::npos) << part;
    }
  }
}

// The last two that were added: no other source of the module knows them.
TEST(Registry, NoOtherSourceNamesTheLastTwo) {
  int sources = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(source_folder())) {
    const std::string file = entry.path().filename().string();
    const bool source = file.ends_with(".cc") || file.ends_with(".h");
    if (!source || file.ends_with("_test.cc")) continue;
    ++sources;
    const std::string text = read_text_file(entry.path());
    for (const char* name : {"olmo2", "smollm"}) {
      EXPECT_EQ(text.find(name), std::string::npos) << file << " names " << name;
    }
  }
  EXPECT_GT(sources, 10);
}

}  // namespace
}  // namespace pentatron::families
