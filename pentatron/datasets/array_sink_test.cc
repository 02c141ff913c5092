// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/array_sink.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/base/file.h"
#include "pentatron/base/file_limit_test_support.h"
#include "pentatron/base/temp_folder.h"
#include "pentatron/datasets/gpt_index_cache.h"
#include "pentatron/datasets/index_file.h"
#include "pentatron/datasets/test_corpus.h"
#include "pentatron/tokenizers/null_tokenizer.h"

namespace pentatron::datasets {
namespace {

namespace fs = std::filesystem;
using Kind = IntegerArray::Kind;
using testing::names_in;

// Ten pairs of int32, in blocks of three values.
IntegerArray fill(ArraySink& sink) {
  std::vector<std::int32_t> values(20);
  std::iota(values.begin(), values.end(), 100);
  sink.begin(Kind::kInt32, 20);
  for (std::size_t i = 0; i < values.size(); i += 3) {
    sink.put(std::as_bytes(std::span(values).subspan(i, std::min<std::size_t>(3, 20 - i))));
  }
  IntegerArray array = sink.finish();
  EXPECT_EQ(array.kind(), Kind::kInt32);
  EXPECT_EQ(array.size(), 20);
  for (std::int64_t i = 0; i < 20; ++i) EXPECT_EQ(array[i], 100 + i);
  return array;
}

TEST(ArraySink, TheSizeDecidesWhereValuesGo) {
  const TempFolder folder;
  const fs::path file = folder.path() / "new" / "a.npy";
  {
    ArraySink memory;
    ArraySink small(file, 2, 80);
    fill(memory);
    fill(small);
    EXPECT_FALSE(memory.in_file());
    EXPECT_FALSE(small.in_file());
    EXPECT_FALSE(fs::exists(folder.path() / "new"));
  }
  IntegerArray kept;
  {
    ArraySink large(file, 2, 79);
    kept = fill(large);
    EXPECT_TRUE(large.in_file());
    EXPECT_FALSE(fs::exists(file));
  }
  EXPECT_TRUE(names_in(folder.path() / "new").empty());
  EXPECT_EQ(kept[19], 119);  // of a file without a name
  ArraySink large(file, 2, 79);
  const IntegerArray array = fill(large);
  large.commit();
  EXPECT_EQ(names_in(folder.path() / "new"), std::vector<std::string>{"a.npy"});
  write_index_array(folder.path() / "b.npy", array, 2);
  EXPECT_EQ(read_text_file(file), read_text_file(folder.path() / "b.npy"));
}

TEST(ArraySink, RefusesOtherNumbersOfValues) {
  ArraySink sink;
  const std::vector<std::int64_t> values(3);
  sink.begin(Kind::kInt64, 2);
  EXPECT_THROW(sink.put(std::as_bytes(std::span(values))), Error);
  EXPECT_THROW((void)sink.finish(), Error);
  sink.put(std::as_bytes(std::span(values).first(2)));
  EXPECT_EQ(sink.finish().size(), 2);
}

// An index whose arrays are all large, against the same in memory.
class LargeArrays : public ::testing::Test {
 protected:
  LargeArrays() {
    testing::write_corpus((folder_.path() / "d").string(), testing::counting_documents(10, 20));
    request_.dataset_path = (folder_.path() / "d").string();
    request_.split_matrix = parse_split("8,1,1");
    request_.num_samples = 30;
    request_.sequence_length = 16;
    request_.tokenizer = tokenizers::NullTokenizer(255).description();
    request_.cache_path = (folder_.path() / "memory").string();
    expected_ = load();
    request_.cache_path = (folder_.path() / "files").string();
    request_.largest_in_memory = 0;
  }
  GptIndex load() {
    CacheLog log;
    request_.cache_log = &log;
    GptIndex index = load_or_build_gpt_index(IndexedDataset(request_.dataset_path), request_);
    fate_ = log.lines().at(0).fate;
    request_.cache_log = nullptr;
    return index;
  }
  void expect_equal(const GptIndex& index) const {
    const auto same = [](const IntegerArray& a, const IntegerArray& b) {
      return a.kind() == b.kind() && std::ranges::equal(a.bytes(), b.bytes());
    };
    EXPECT_TRUE(same(index.document_index, expected_.document_index));
    EXPECT_TRUE(same(index.sample_index, expected_.sample_index));
    EXPECT_TRUE(same(index.shuffle_index, expected_.shuffle_index));
  }
  void expect_same_files() const {
    const auto names = names_in(folder_.path() / "memory");
    EXPECT_EQ(names.size(), 5U);
    EXPECT_EQ(names_in(folder_.path() / "files"), names);
    for (const std::string& name : names) {
      EXPECT_EQ(read_text_file(folder_.path() / "files" / name),
                read_text_file(folder_.path() / "memory" / name))
          << name;
    }
  }
  [[nodiscard]] fs::path sample_file() const {
    return fs::path(request_.cache_path) /
           (gpt_index_file_stem(request_, MegatronVersion::kNewer) + "-sample_index.npy");
  }

  TempFolder folder_;
  GptIndexRequest request_;
  GptIndex expected_;
  CacheLog::Fate fate_ = CacheLog::Fate::kUnwritten;
};

TEST_F(LargeArrays, TheSameIndexAndTheSameFiles) {
  expect_equal(load());
  EXPECT_EQ(fate_, CacheLog::Fate::kWritten);
  expect_same_files();
  expect_equal(load());
  EXPECT_EQ(fate_, CacheLog::Fate::kServed);
}

// As Megatron leaves a cache, without checksums: built once more, and its array stays.
TEST_F(LargeArrays, WhatStandsIsKept) {
  (void)load();
  fs::remove(fs::path(request_.cache_path) /
             (gpt_index_file_stem(request_, MegatronVersion::kNewer) + "-checksums.txt"));
  const fs::path link = folder_.path() / "link";
  fs::create_hard_link(sample_file(), link);
  expect_equal(load());
  EXPECT_EQ(fate_, CacheLog::Fate::kWritten);
  EXPECT_TRUE(fs::equivalent(sample_file(), link));
  expect_same_files();
}

TEST_F(LargeArrays, ADamagedFileIsReplaced) {
  (void)load();
  testing::write_text(sample_file(), read_text_file(sample_file()).substr(0, 200));
  expect_equal(load());
  EXPECT_EQ(fate_, CacheLog::Fate::kWritten);
  expect_same_files();
}

TEST_F(LargeArrays, WithoutRoomTheyStayInMemory) {
  {
    const LargestFile full(200);  // behind the header
    expect_equal(load());
    EXPECT_EQ(fate_, CacheLog::Fate::kUnwritten);
    EXPECT_TRUE(names_in(request_.cache_path).empty());
  }
  testing::write_text(folder_.path() / "file", "in the way");
  request_.cache_path = (folder_.path() / "file").string();
  expect_equal(load());
  EXPECT_EQ(fate_, CacheLog::Fate::kUnwritten);
}

}  // namespace
}  // namespace pentatron::datasets
