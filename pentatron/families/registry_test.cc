// SPDX-License-Identifier: Apache-2.0
#include "pentatron/families/registry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

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

// Where else a family's name may stand, and why. A row that nothing needs is an error.
struct Allowed {
  const char* path;  // beginning, from the root
  std::vector<std::string> names;
  const char* reason;
  int used = 0;
};

std::vector<Allowed> allow_list() {
  return {
      {"apps/bench.cc", {"llama"}, "workloads are published models"},
      {"apps/main.cc", {"llama", "gpt2"}, "what the program is for, in a line"},
      {"apps/tokenizer_flags.cc", {"llama", "gpt2"}, "Megatron's names of tokenizers"},
      {"apps/train_tokenizer.cc", {"gpt2"}, "the format of a vocabulary"},
      {"pentatron/bench/", {"llama", "gpt2", "qwen2"}, "workloads are published models"},
      {"pentatron/config/",
       {"llama", "gpt2", "nemotron", "falcon", "gpt_neox", "phi3", "gemma2", "gemma3", "olmo2"},
       "Megatron's names of tokenizers and formats; help that says where a form comes from"},
      {"pentatron/datasets/sft_format.cc", {"nemotron"}, "Megatron's names of prompt formats"},
      {"pentatron/families/folder.cc", {"llama", "gpt2"}, "Megatron's names of tokenizers"},
      {"pentatron/families/key_rules.cc", {"llama"}, "a key that many config.json hold"},
      {"pentatron/families/rope_keys.cc", {"llama"}, "a rope_type of config.json"},
      {"pentatron/inference/CMakeLists.txt", {"gemma3"}, "a test of published weights"},
      {"pentatron/ops/rotary.", {"llama"}, "the published name of a scaling"},
      {"pentatron/tokenizers/",
       {"llama", "gpt2", "qwen2"},
       "names of published patterns and of Megatron's tokenizers"},
      {"pentatron/transformer/rotary_tables.cc", {"llama"}, "the published name of a scaling"},
  };
}

// Whether a lower-case line has the name, however its parts are joined: "gpt2", "gpt-2", "gpt 2".
bool mentions(const std::string& line, const std::string& name) {
  const std::size_t digit = name.find_last_not_of("0123456789") + 1;
  const std::size_t underscore = name.find('_');
  const std::string head = name.substr(0, std::min(digit, underscore));
  const std::string tail =
      underscore == std::string::npos ? name.substr(digit) : name.substr(underscore + 1);
  for (std::size_t at = line.find(head); at != std::string::npos; at = line.find(head, at + 1)) {
    std::size_t rest = at + head.size();
    if (!tail.empty() && rest < line.size() && std::string("-_ ").find(line[rest]) < 3) ++rest;
    if (line.compare(rest, tail.size(), tail) == 0) return true;
  }
  return false;
}

TEST(Registry, MentionsAreFound) {
  for (const char* line : {"gpt-2 of", "kgpt2", "a gpt 2", "_gpt_2_"}) {
    EXPECT_TRUE(mentions(line, "gpt2")) << line;
  }
  EXPECT_FALSE(mentions("gpt of 2, gptneox", "gpt2"));
  EXPECT_TRUE(mentions("gptneoxforcausallm", "gpt_neox"));
  EXPECT_TRUE(mentions("a llama", "llama"));
  EXPECT_FALSE(mentions("phi, 13", "phi3"));
}

bool is_source(const std::string& file) {
  const bool source = file.ends_with(".cc") || file.ends_with(".h") || file.ends_with(".inc") ||
                      file.ends_with(".cu") || file.ends_with(".cuh") || file == "CMakeLists.txt";
  return source && !file.ends_with("_test.cc") && !file.ends_with("test_support.h");
}

// The code of a source, in lower case; what comments say does nothing.
std::vector<std::string> code_lines(const fs::path& path) {
  const char* comment = path.filename() == "CMakeLists.txt" ? "#" : "//";
  std::vector<std::string> lines;
  std::istringstream text(read_text_file(path));
  for (std::string line; std::getline(text, line);) {
    line.resize(std::min(line.size(), line.find(comment)));
    std::transform(line.begin(), line.end(), line.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    lines.push_back(line);
  }
  return lines;
}

// A family may stand on another that offers itself by a header: its folder has one.
bool offers_itself(const std::string& name) {
  for (const fs::directory_entry& entry : fs::directory_iterator(source_folder() / name)) {
    if (entry.path().extension() == ".h") return true;
  }
  return false;
}

// No code outside a family's folder and its line knows it: nothing else is to be changed when one
// is added or taken away.
TEST(Registry, NoOtherSourceNamesAFamily) {
  const fs::path root = source_folder().parent_path().parent_path();
  const std::vector<std::string> names = lines();
  std::vector<Allowed> allowed = allow_list();
  int sources = 0;
  const auto may_stand = [&](const std::string& path, const std::string& name) {
    const std::string families = "pentatron/families/";
    if (path.starts_with(families + name + "/") || path == families + "registry.inc") return true;
    const bool of_a_family =
        path.starts_with(families) && path.find('/', families.size()) != std::string::npos;
    if (of_a_family && offers_itself(name)) return true;
    for (Allowed& row : allowed) {
      if (!path.starts_with(row.path)) continue;
      if (std::find(row.names.begin(), row.names.end(), name) == row.names.end()) continue;
      ++row.used;
      return true;
    }
    return false;
  };
  for (const char* top : {"pentatron", "apps"}) {
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root / top)) {
      if (!entry.is_regular_file() || !is_source(entry.path().filename().string())) continue;
      ++sources;
      const std::string path = fs::relative(entry.path(), root).generic_string();
      const std::vector<std::string> code = code_lines(entry.path());
      for (std::size_t i = 0; i < code.size(); ++i) {
        for (const std::string& name : names) {
          if (!mentions(code[i], name) || may_stand(path, name)) continue;
          ADD_FAILURE() << path << ":" << i + 1 << " names the family " << name;
        }
      }
    }
  }
  EXPECT_GT(sources, 500);
  for (const Allowed& row : allowed) {
    EXPECT_GT(row.used, 0) << row.path << " is allowed (" << row.reason << ") for nothing";
  }
}

}  // namespace
}  // namespace pentatron::families
