// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "pentatron/base/temp_folder.h"
#include "pentatron/datasets/gpt_dataset.h"
#include "pentatron/datasets/sparse_corpus_test_support.h"

// What pentatron/datasets/large_index_test.cc shows of parts, of one whole index: drawn, written to
// its cache, read from there. Its memory is limited to the shuffle of the samples and a little
// more: the sample index, twice as large, goes to its file while it is drawn.
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

constexpr rlim_t kMemory = rlim_t{10} << 30;
static_assert(2 * (kSamples + 1) * sizeof(std::int32_t) > kMemory);
constexpr std::uint64_t kDisk = std::uint64_t{27} << 30;

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

// Gives the tokens that a sample reads values of their own, and reads it.
void expect_tokens(const GptDataset& dataset, const std::string& prefix, std::int64_t sample) {
  const std::int64_t begin = kSequence * dataset.index().shuffle_index[sample];
  std::fstream bin(prefix + ".bin", std::ios::binary | std::ios::in | std::ios::out);
  const std::vector<std::int64_t> values = {1 + sample % 83, 1 + sample % 89, 1 + sample % 97};
  bin.seekp(begin);
  for (const std::int64_t value : values) bin.put(static_cast<char>(value));
  bin.close();
  const Sample read = dataset.sample(sample);
  EXPECT_EQ(read.ids("tokens"), (std::vector{values[0], values[1]})) << sample;
  EXPECT_EQ(read.ids("labels"), (std::vector{values[1], values[2]})) << sample;
}

TEST(LargeIndexWhole, SamplesPast2To31) {
  const auto disk = fs::space(fs::temp_directory_path()).available;
  if (available_memory() < static_cast<std::int64_t>(kMemory) || disk < kDisk) {
    GTEST_SKIP() << "needs 10 GiB of memory and 27 of disk under "
                 << fs::temp_directory_path().string() << ", there are "
                 << (available_memory() >> 30) << " and " << (disk >> 30);
  }
  const rlimit limit{kMemory, kMemory};
  ASSERT_EQ(::setrlimit(RLIMIT_DATA, &limit), 0);
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
    constexpr std::int64_t kBorder = std::int64_t{1} << 31;
    for (const std::int64_t i :
         {std::int64_t{0}, kBorder - 1, kBorder, kBorder + 1, kSamples - 1}) {
      expect_tokens(dataset, prefix, i);
    }
  }
}

}  // namespace
}  // namespace pentatron::datasets
