// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/base/npy.h"
#include "pentatron/base/temp_folder.h"
#include "pentatron/datasets/data_loader.h"
#include "pentatron/datasets/global_batch_plan.h"
#include "pentatron/datasets/gpt_dataset.h"
#include "pentatron/datasets/index_file.h"
#include "pentatron/datasets/memory_test_support.h"
#include "pentatron/datasets/sparse_corpus_test_support.h"
#include "pentatron/datasets/test_corpus.h"

// Beyond 32 bits: tokens past 2^32, samples past 2^31 and 2^32. One whole index of that size:
// tests/large/whole_index_test.cc.
namespace pentatron::datasets {
namespace {

namespace fs = std::filesystem;

constexpr std::int32_t kLong = std::numeric_limits<std::int32_t>::max();  // tokens of a sequence
constexpr std::int64_t kSequences = 3;
constexpr std::int64_t kTokens = kSequences * kLong;
static_assert(kTokens > (std::int64_t{1} << 32));

// The token at a place of the corpus that was given one, else 0.
std::uint8_t token_at(std::int64_t place) { return static_cast<std::uint8_t>(1 + place % 99); }

// Three sequences of 2^31 - 1 tokens of one byte, with tokens at `places` alone.
void write_large_corpus(const std::string& prefix, const std::vector<std::int64_t>& places) {
  testing::write_sparse_corpus(prefix, kSequences, kLong);
  std::fstream bin(prefix + ".bin", std::ios::binary | std::ios::in | std::ios::out);
  for (const std::int64_t place : places) {
    bin.seekp(place);
    bin.put(static_cast<char>(token_at(place)));
  }
}

TEST(LargeIndex, TokensPast2To32) {
  const TempFolder folder;
  const std::string prefix = (folder.path() / "c").string();
  std::vector<std::int64_t> places;
  for (std::int64_t place = 12345; place < kTokens; place += 100'000'007) places.push_back(place);
  write_large_corpus(prefix, places);
  // An ordinary build, end to end: 61 samples of 100 million tokens, walked through by their
  // begins.
  constexpr std::int64_t kLength = 104'857'600;
  const GptDatasetOptions options = testing::sparse_corpus_options(prefix, kLength);
  const auto corpus = open_gpt_corpus(options);
  for (int time = 0; time < 2; ++time) {  // built, then from the cache
    const GptDataset dataset(corpus, options, DataSplit::kTrain, std::nullopt);
    ASSERT_EQ(dataset.num_samples(), (kTokens - 1) / kLength);
    const GptIndex& index = dataset.index();
    EXPECT_EQ(index.sample_index.kind(), IntegerArray::Kind::kInt32);
    for (std::int64_t n = 0; n <= dataset.num_samples(); ++n) {
      EXPECT_EQ(index.sample_index[2 * n], n * kLength / kLong);
      EXPECT_EQ(index.sample_index[2 * n + 1], n * kLength % kLong);
    }
  }
  // Tokens where they were put, in sequences that end past 2^32.
  for (const std::int64_t place : places) {
    std::vector<std::int64_t> three(3);
    if (place % kLong < 1 || place % kLong > kLong - 2) continue;
    corpus->read(place / kLong, place % kLong - 1, three);
    EXPECT_EQ(three, (std::vector<std::int64_t>{0, token_at(place), 0})) << place;
  }
}

// A mapped sparse file of a one-dimensional array.
template <typename T>
class SparseArray final {
 public:
  SparseArray(const fs::path& path, std::int64_t size) : size_(size) {
    std::ofstream(path).close();
    fs::resize_file(path, static_cast<std::uintmax_t>(size) * sizeof(T));
    const int fd = ::open(path.c_str(), O_RDWR);
    void* const map = ::mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ::close(fd);
    PENTATRON_CHECK(map != MAP_FAILED, kIo, "{} cannot be mapped", path.string());
    values_ = std::shared_ptr<T>(static_cast<T*>(map), [n = bytes()](T* p) { ::munmap(p, n); });
  }
  void set(std::int64_t i, std::int64_t value) { values_.get()[i] = static_cast<T>(value); }
  [[nodiscard]] IntegerArray array(IntegerArray::Kind kind) const {
    return {kind, reinterpret_cast<const std::byte*>(values_.get()), size_, values_};
  }

 private:
  [[nodiscard]] std::size_t bytes() const { return static_cast<std::size_t>(size_) * sizeof(T); }

  std::int64_t size_;
  std::shared_ptr<T> values_;
};

// One token a sample: more than 2^32 of them, read by places past 2^31 and 2^32 through dataset and
// loader. The index that a build would take 150 GB for is there in the entries that are read.
TEST(LargeIndex, SamplesPast2To31And2To32) {
  const TempFolder folder;
  const std::string prefix = (folder.path() / "c").string();
  constexpr std::int64_t kSamples = kTokens - 1;
  // In training order, and which entry of the sample index each is.
  const std::vector<std::pair<std::int64_t, std::int64_t>> samples = {
      {5, (std::int64_t{1} << 32) + 17},
      {(std::int64_t{1} << 31) + 1, 40},
      {(std::int64_t{1} << 31) + 2, (std::int64_t{1} << 31) + 5},
      {(std::int64_t{1} << 32) + 1, kSamples - 1},
      {kSamples - 1, (std::int64_t{1} << 32) - 1}};
  std::vector<std::int64_t> places;
  for (const auto& [sample, entry] : samples) places.insert(places.end(), {entry, entry + 1});
  write_large_corpus(prefix, places);
  const GptDatasetOptions options = testing::sparse_corpus_options(prefix, 1);
  const auto corpus = open_gpt_corpus(options);
  GptIndex index;
  index.plan = plan_gpt_index(kTokens, std::nullopt, 1);
  ASSERT_EQ(index.num_samples(), kSamples);
  index.document_index = IntegerArray(std::vector<std::int32_t>{0, 1, 2});
  const IntegerArray::Kind shuffle_kind = shuffle_index_kind(kSamples);
  ASSERT_EQ(shuffle_kind, IntegerArray::Kind::kInt64);
  SparseArray<std::int64_t> shuffle(folder.path() / "shuffle", kSamples);
  SparseArray<std::int32_t> begins(folder.path() / "begins", 2 * (kSamples + 1));
  for (const auto& [sample, entry] : samples) {
    shuffle.set(sample, entry);
    begins.set(2 * entry, entry / kLong);
    begins.set(2 * entry + 1, entry % kLong);
  }
  index.shuffle_index = shuffle.array(shuffle_kind);
  index.sample_index = begins.array(sample_index_kind(3));
  const GptIndexSource source{corpus.get(), 0, 3, 1, 1234};
  EXPECT_EQ(check_gpt_index_sizes(source, index), std::nullopt);
  const std::int64_t before = testing::reset_peak();
  const GptDataset dataset(corpus, options, std::move(index));
  ASSERT_EQ(dataset.num_samples(), kSamples);
  for (const auto& [sample, entry] : samples) {
    const Sample read = dataset.sample(sample);
    EXPECT_EQ(read.ids("tokens").at(0), token_at(entry)) << sample;
    EXPECT_EQ(read.ids("labels").at(0), token_at(entry + 1)) << sample;
  }
  DataLoader loader(dataset, {.plan = std::make_shared<GlobalBatchPlan>(2, 1, 2),
                              .dp_rank = 1,
                              .consumed_samples = std::int64_t{1} << 31,
                              .num_workers = 0});
  const auto step = loader.next().value();
  EXPECT_EQ(step.at(0)->sample_ids.at(0), (std::int64_t{1} << 31) + 1);
  EXPECT_EQ(step.at(0)->ids("tokens")[0], token_at(40));
  EXPECT_EQ(loader.num_steps(), (kSamples - (std::int64_t{1} << 31)) / 2);
  EXPECT_LT(testing::peak_bytes() - before, 64 << 20);
}

TEST(LargeIndex, DtypesAtTheirBorders) {
  using Kind = IntegerArray::Kind;
  constexpr std::int64_t kUint32Max = std::numeric_limits<std::uint32_t>::max();
  EXPECT_EQ(sample_index_kind(kLong), Kind::kInt32);
  EXPECT_EQ(sample_index_kind(kLong + 1LL), Kind::kInt64);
  EXPECT_EQ(shuffle_index_kind(kUint32Max - 2), Kind::kUint32);
  EXPECT_EQ(shuffle_index_kind(kUint32Max - 1), Kind::kInt64);  // from 2^32 - 2
  // A trillion tokens, and a number of samples past 2^33.
  const GptIndexPlan plan = plan_gpt_index(1'000'000'000'000, std::int64_t{1} << 33, 8192);
  EXPECT_EQ(plan.num_epochs, 71);
  EXPECT_EQ(plan.num_samples, (71'000'000'000'000 - 1) / 8192);
}

}  // namespace
}  // namespace pentatron::datasets
