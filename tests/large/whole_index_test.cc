// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "pentatron/base/temp_folder.h"
#include "pentatron/datasets/gpt_dataset.h"
#include "pentatron/datasets/sparse_corpus_test_support.h"

// What pentatron/datasets/large_index_test.cc shows of parts, of one whole index: drawn in memory,
// written to its cache, read from there.
namespace pentatron::datasets {
namespace {

namespace fs = std::filesystem;

// Three documents of so many tokens of one byte; two tokens a sample: just past 2^31 samples, and
// past 2^32 tokens.
constexpr std::int64_t kLength = 1'431'655'770;
constexpr std::int64_t kDocuments = 3;
constexpr std::int64_t kTokens = kDocuments * kLength;
constexpr std::int64_t kSequence = 2;
constexpr std::int64_t kSamples = (kTokens - 1) / kSequence;
static_assert(kTokens > std::int64_t{1} << 32);
static_assert(kSamples > std::int64_t{1} << 31);

// Bytes of memory that may be taken; 0 where nobody tells.
std::int64_t available_memory() {
  std::ifstream file("/proc/meminfo");
  for (std::string word; file >> word;) {
    std::int64_t kilobytes = 0;
    if (word == "MemAvailable:" && file >> kilobytes) return kilobytes * 1024;
  }
  return 0;
}

// Entry n begins at token 2 n of the documents laid end to end: at the borders of 31 and 32 bits,
// at both ends and at places between.
void expect_begins(const GptIndex& index) {
  const auto expect = [&](std::int64_t n) {
    if (n < 0 || n > kSamples) return;
    ASSERT_EQ(index.sample_index[2 * n], kSequence * n / kLength) << n;
    ASSERT_EQ(index.sample_index[2 * n + 1], kSequence * n % kLength) << n;
  };
  for (const std::int64_t around : {std::int64_t{0}, std::int64_t{1} << 30, std::int64_t{1} << 31,
                                    kLength / kSequence, kLength, kSamples}) {
    for (std::int64_t n = around - 100; n <= around + 100; ++n) expect(n);
  }
  for (std::int64_t n = 0; n < kSamples; n += 999'983) expect(n);
}

TEST(LargeIndexWhole, SamplesPast2To31) {
  constexpr std::int64_t kNeeded = std::int64_t{30} << 30;
  if (available_memory() < kNeeded || fs::space(fs::temp_directory_path()).available < kNeeded) {
    GTEST_SKIP() << "needs 30 GiB of memory and of disk under "
                 << fs::temp_directory_path().string() << ", there are "
                 << (available_memory() >> 30) << " and "
                 << (fs::space(fs::temp_directory_path()).available >> 30);
  }
  const TempFolder folder;
  const std::string prefix = (folder.path() / "c").string();
  testing::write_sparse_corpus(prefix, kDocuments, static_cast<std::int32_t>(kLength));
  GptDatasetOptions options = testing::sparse_corpus_options(prefix, kSequence);
  const auto corpus = open_gpt_corpus(options);
  for (int time = 0; time < 2; ++time) {  // drawn, then from the cache
    CacheLog log;
    options.cache_log = &log;
    const GptDataset dataset(corpus, options, DataSplit::kTrain, std::nullopt);
    ASSERT_EQ(dataset.num_samples(), kSamples);
    ASSERT_EQ(log.lines().size(), 1U);
    EXPECT_EQ(log.lines().front().fate,
              time == 0 ? CacheLog::Fate::kWritten : CacheLog::Fate::kServed);
    const GptIndex& index = dataset.index();
    EXPECT_EQ(index.sample_index.kind(), IntegerArray::Kind::kInt32);
    EXPECT_EQ(index.shuffle_index.kind(), IntegerArray::Kind::kUint32);
    expect_begins(index);
    if (time == 0) {
      const GptIndexSource source = {corpus.get(), 0, kDocuments, kSequence, options.seed};
      EXPECT_EQ(check_gpt_index(source, index), std::nullopt);
    }
    for (const std::int64_t i : {std::int64_t{1} << 31, kSamples - 1}) {
      EXPECT_EQ(dataset.sample(i).length(), kSequence);
    }
  }
}

}  // namespace
}  // namespace pentatron::datasets
