// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tensor/algorithm_file.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <optional>

#include "pentatron/base/env.h"
#include "pentatron/base/file.h"
#include "pentatron/base/temp_folder.h"

namespace pentatron::tensor {
namespace {

constexpr std::int64_t kLibrary = 130100;
constexpr const char* kGpu = "NVIDIA H100 80GB HBM3";
const AlgorithmWords kWords{1, 0, ~std::uint64_t{0}, 0x123456789abcdef0, 4, 5, 6, 7};

TEST(AlgorithmFile, KeepsChoicesOfOneGpuAndLibrary) {
  const TempFolder folder;
  const ProductKey key{8192, 14336, 4096, -1, std::numeric_limits<std::int64_t>::min()};
  const std::filesystem::path place = folder.path() / "made" / "here";
  AlgorithmFile file(place, kGpu, kLibrary);
  EXPECT_EQ(file.find(key), nullptr);
  file.put(key, kWords);
  file.put({1}, {});
  ASSERT_NE(file.find(key), nullptr);
  EXPECT_EQ(file.path().filename(), "cublaslt-130100-NVIDIA-H100-80GB-HBM3.tsv");
  const AlgorithmFile again(place, kGpu, kLibrary);
  ASSERT_NE(again.find(key), nullptr);
  EXPECT_EQ(*again.find(key), kWords);
  ASSERT_NE(again.find({1}), nullptr);
  EXPECT_EQ(AlgorithmFile(place, kGpu, kLibrary + 1).find(key), nullptr);
  EXPECT_EQ(AlgorithmFile(place, "NVIDIA H200", kLibrary).find(key), nullptr);
  EXPECT_EQ(AlgorithmFile({}, kGpu, kLibrary).find(key), nullptr);
}

TEST(AlgorithmFile, ProcessesAddToOneFile) {
  const TempFolder folder;
  AlgorithmFile first(folder.path(), kGpu, kLibrary), second(folder.path(), kGpu, kLibrary);
  first.put({1}, kWords);
  second.put({2}, kWords);
  const AlgorithmFile both(folder.path(), kGpu, kLibrary);
  EXPECT_NE(both.find({1}), nullptr);
  EXPECT_NE(both.find({2}), nullptr);
}

TEST(AlgorithmFile, WithoutAFolderChoicesLastAsLongAsTheObject) {
  AlgorithmFile file({}, kGpu, kLibrary);
  file.put({1}, kWords);
  EXPECT_NE(file.find({1}), nullptr);
  const TempFolder folder;
  write_file_atomically(folder.path() / "file", "");
  AlgorithmFile nowhere(folder.path() / "file", kGpu, kLibrary);
  nowhere.put({1}, kWords);
  EXPECT_NE(nowhere.find({1}), nullptr);
}

// Nothing of a file with one wrong byte is taken, and the next choice replaces it.
TEST(AlgorithmFile, DamagedContentCountsAsNone) {
  const TempFolder folder;
  AlgorithmFile file(folder.path(), kGpu, kLibrary);
  file.put({1, 2}, kWords);
  const std::string sound = read_text_file(file.path());
  const std::string first = sound.substr(0, sound.find('\n') + 1);
  const std::string entry = sound.substr(first.size());
  std::string many = first;
  for (std::size_t i = 0; i <= AlgorithmFile::kMaxEntries; ++i) {
    many += std::to_string(i) + entry.substr(3);
  }
  std::string long_key = first;
  for (int i = 0; i < 40; ++i) long_key += "1 ";
  for (const std::string& text :
       {std::string(), std::string("\0\n\n\t", 4), std::string(1 << 21, '1'), sound + "\n",
        sound + "3\n", fmt::format("{}\t{}", first, entry),
        fmt::format("{}1 x{}", first, entry.substr(3)),
        fmt::format("{}99999999999999999999{}", first, entry.substr(3)),
        sound.substr(0, sound.size() - 4), sound.substr(0, sound.size() - 1),
        fmt::format("{}{} 1\n", first, entry.substr(0, entry.size() - 1)), "x" + sound, many,
        long_key + entry}) {
    write_file_atomically(file.path(), text);
    EXPECT_EQ(AlgorithmFile(folder.path(), kGpu, kLibrary).find({1, 2}), nullptr)
        << text.substr(0, 200);
  }
  AlgorithmFile next(folder.path(), kGpu, kLibrary);
  next.put({1, 2}, kWords);
  EXPECT_EQ(read_text_file(file.path()), sound);
}

TEST(AlgorithmFile, LiesInTheUsersCacheFolder) {
  const auto cache = env_string("XDG_CACHE_HOME"), home = env_string("HOME");
  const auto set = [](const char* name, const std::optional<std::string>& value) {
    if (value) {
      ::setenv(name, value->c_str(), 1);
    } else {
      ::unsetenv(name);
    }
  };
  set("XDG_CACHE_HOME", "/hers");
  set("HOME", "/her");
  EXPECT_EQ(user_cache_folder(), "/hers/pentatron");
  set("XDG_CACHE_HOME", "relative");
  EXPECT_EQ(user_cache_folder(), "/her/.cache/pentatron");
  set("HOME", std::nullopt);
  EXPECT_TRUE(user_cache_folder().empty());
  set("XDG_CACHE_HOME", cache);
  set("HOME", home);
}

}  // namespace
}  // namespace pentatron::tensor
