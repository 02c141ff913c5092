// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/gpt_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/base/npy.h"
#include "pentatron/base/temp_folder.h"
#include "pentatron/datasets/gpt_index_cache.h"
#include "pentatron/datasets/numpy_random.h"
#include "pentatron/datasets/test_corpus.h"
#include "pentatron/tokenizers/null_tokenizer.h"

namespace pentatron::datasets {
namespace {

namespace fs = std::filesystem;

constexpr const char* kNewerStem = "e46c9841936cab33ddaac8b531fd658b-GPTDataset-train";
constexpr const char* k016Stem = "3869802218277e6cb7fe402922206d28-GPTDataset-train";

template <typename T>
std::vector<T> range(T begin, T end) {
  std::vector<T> values(static_cast<std::size_t>(end - begin));
  std::iota(values.begin(), values.end(), begin);
  return values;
}

std::vector<std::int64_t> values(const IntegerArray& array) {
  std::vector<std::int64_t> out;
  for (std::int64_t i = 0; i < array.size(); ++i) out.push_back(array[i]);
  return out;
}

// The published run: ten documents of 20 to 29 tokens, prefix "d", sequence 16, seed 1234, split
// 8,1,1, 30 samples.
class PublishedRun : public ::testing::Test {
 protected:
  PublishedRun() : working_(folder_.path()) {
    testing::write_corpus("d", testing::counting_documents(10, 20));
    request_.dataset_path = "d";
    request_.split_matrix = parse_split("8,1,1");
    request_.num_samples = 30;
    request_.sequence_length = 16;
    request_.seed = 1234;
    request_.tokenizer = tokenizers::NullTokenizer(255).description();
  }
  [[nodiscard]] fs::path cache(const std::string& name) const {
    return fs::path("d/cache/GPTDataset_indices") / name;
  }

  TempFolder folder_;
  testing::WorkingFolder working_;
  GptIndexRequest request_;
};

TEST(NumpyRandom, PublishedShuffles) {
  {
    NumpyRandomState random(1234);
    auto documents = range<std::int32_t>(0, 10);
    random.shuffle(std::span(documents));
    EXPECT_EQ(documents, (std::vector<std::int32_t>{7, 2, 9, 1, 0, 8, 4, 5, 6, 3}));
    auto samples = range<std::uint32_t>(0, 12);
    random.shuffle(std::span(samples));
    EXPECT_EQ(samples, (std::vector<std::uint32_t>{3, 11, 2, 1, 7, 5, 4, 0, 8, 6, 10, 9}));
  }
  NumpyRandomState random(1234);
  auto documents = range<std::int32_t>(0, 10);
  auto last = documents;
  documents.insert(documents.end(), last.begin(), last.end());
  random.shuffle(std::span(documents));
  random.shuffle(std::span(last));
  documents.insert(documents.end(), last.begin(), last.end());
  EXPECT_EQ(documents, (std::vector<std::int32_t>{3, 3, 2, 6, 4, 5, 4, 0, 8, 8, 7, 1, 0, 9, 7,
                                                  1, 9, 2, 6, 5, 8, 1, 7, 6, 9, 5, 4, 3, 0, 2}));
  auto first_samples = range<std::int64_t>(0, 8);
  auto last_samples = range<std::int64_t>(8, 12);
  random.shuffle(std::span(first_samples));
  random.shuffle(std::span(last_samples));
  EXPECT_EQ(first_samples, (std::vector<std::int64_t>{2, 4, 5, 6, 1, 0, 3, 7}));
  EXPECT_EQ(last_samples, (std::vector<std::int64_t>{11, 9, 8, 10}));
}

// NumPy 2.4.6: RandomState(1234).randint(0, most + 1, 2, dtype=uint64), one after the other. Up to
// 2^32 - 1 a draw is one word, above it two.
TEST(NumpyRandom, DrawsAroundTheBordersOf32Bits) {
  NumpyRandomState random(1234);
  const std::vector<std::array<std::uint64_t, 3>> draws = {
      {2147483647, 822569775, 2137449171},  {2147483648, 1880026316, 1170776343},
      {4294967294, 646980841, 1187404954},  {4294967295, 852631582, 3444014763},
      {4294967296, 4115177196, 3762102042}, {4294967297, 1536813498, 2151757680},
      {8589934592, 2935450949, 3061031881}, {1099511640121, 216909090544, 1078095926348}};
  for (const auto& [most, first, second] : draws) {
    EXPECT_EQ(random.random_interval(most), first) << most;
    EXPECT_EQ(random.random_interval(most), second) << most;
  }
}

TEST(NumpyRandom, RefusesSeedsThatNumpyRefuses) {
  EXPECT_THROW(NumpyRandomState(-1), Error);
  EXPECT_THROW(NumpyRandomState(1LL << 32), Error);
  NumpyRandomState largest((1LL << 32) - 1);
  EXPECT_EQ(largest.random_interval(0), 0U);
  for (int i = 0; i < 100; ++i) EXPECT_LE(largest.random_interval(5), 5U);
  EXPECT_LE(largest.random_interval(1ULL << 40), 1ULL << 40);
}

TEST(GptIndexPlan, EpochsAreTheSmallestThatSuffice) {
  for (std::int64_t tokens = 17; tokens < 90; ++tokens) {
    for (std::int64_t samples = 0; samples < 60; ++samples) {
      const std::int64_t sequence = 16;
      const GptIndexPlan plan = plan_gpt_index(tokens, samples, sequence);
      EXPECT_GE(plan.num_epochs * tokens, samples * sequence + 1);
      EXPECT_TRUE(plan.num_epochs == 1 || (plan.num_epochs - 1) * tokens < samples * sequence + 1);
      EXPECT_GE(plan.num_samples, samples);
      EXPECT_EQ(plan.num_samples, (plan.num_epochs * tokens - 1) / sequence);
    }
  }
}

TEST(GptIndexPlan, RefusesWhatCannotBeSampled) {
  EXPECT_THROW((void)plan_gpt_index(0, 10, 16), Error);
  EXPECT_THROW((void)plan_gpt_index(16, std::nullopt, 16), Error);  // one token too few
  EXPECT_EQ(plan_gpt_index(17, std::nullopt, 16).num_samples, 1);
  EXPECT_THROW((void)plan_gpt_index(100, 10, 0), Error);
  EXPECT_THROW((void)plan_gpt_index(100, 1LL << 62, 16), Error);
}

TEST_F(PublishedRun, CorpusBytes) {
  EXPECT_EQ(testing::md5_of_file("d.idx"), "d5931a30006454cb8b6b40324a1f74f6");
  EXPECT_EQ(testing::md5_of_file("d.bin"), "afe1b077e07c40ec26b3339f0f5494a3");
}

TEST_F(PublishedRun, CacheFilesEqualMegatrons) {
  const IndexedDataset dataset("d");
  const GptIndex index = load_or_build_gpt_index(dataset, request_);
  const std::string stem = kNewerStem;
  EXPECT_EQ(testing::md5_of_file(cache(stem + "-document_index.npy")),
            "c20494783f4891947f9a22e4bda09ffa");
  EXPECT_EQ(testing::md5_of_file(cache(stem + "-sample_index.npy")),
            "6e3162d5a1a2797fd9d110a2f3c00fd1");
  EXPECT_EQ(testing::md5_of_file(cache(stem + "-shuffle_index.npy")),
            "e7a5743f4e11c889918eef7b87ee298a");
  EXPECT_EQ(testing::md5_of_file(cache(stem + "-description.txt")) + "-GPTDataset-train", stem);
  EXPECT_EQ(gpt_index_file_stem(request_, MegatronVersion::kNewer), kNewerStem);
  EXPECT_EQ(gpt_index_file_stem(request_, MegatronVersion::k016), k016Stem);
  EXPECT_EQ(std::distance(fs::directory_iterator(cache("")), fs::directory_iterator()),
            5);  // and checksums, ours
}

TEST_F(PublishedRun, DescriptionOfOneEpochAndEmptyParts) {
  request_.num_samples = std::nullopt;
  request_.split_matrix = parse_split("1,0,1");
  request_.split = DataSplit::kTest;
  const std::string text = gpt_index_description(request_, MegatronVersion::kNewer);
  EXPECT_NE(text.find("    \"num_samples\": null,\n    \"index_split\": \"test\",\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("    \"split_matrix\": [\n        [\n            0,\n            0.5\n"
                      "        ],\n        null,\n        [\n            0.5,\n            1.0\n"
                      "        ]\n    ],\n"),
            std::string::npos)
      << text;
}

// What became of the one entry that a request asks for.
CacheLog::Fate fate_of(const Corpus& corpus, GptIndexRequest request) {
  CacheLog log;
  request.cache_log = &log;
  (void)load_or_build_gpt_index(corpus, request);
  EXPECT_EQ(log.lines().size(), 1U);
  return log.lines().at(0).fate;
}

TEST_F(PublishedRun, CacheIsFoundUnderBothNames) {
  const IndexedDataset dataset("d");
  EXPECT_EQ(fate_of(dataset, request_), CacheLog::Fate::kWritten);
  EXPECT_EQ(fate_of(dataset, request_), CacheLog::Fate::kServed);
  // As Megatron 0.16.1 leaves them: under its names, without checksums.
  for (const char* affix : {"-document_index.npy", "-sample_index.npy", "-shuffle_index.npy"}) {
    fs::rename(cache(std::string(kNewerStem) + affix), cache(std::string(k016Stem) + affix));
  }
  fs::remove(cache(std::string(kNewerStem) + "-description.txt"));
  fs::remove(cache(std::string(kNewerStem) + "-checksums.txt"));
  testing::write_text(cache(std::string(k016Stem) + "-description.txt"),
                      gpt_index_description(request_, MegatronVersion::k016));
  const fs::path shuffle = cache(std::string(k016Stem) + "-shuffle_index.npy");
  const auto written = fs::last_write_time(shuffle);
  EXPECT_EQ(fate_of(dataset, request_), CacheLog::Fate::kWritten);  // the checksums alone
  EXPECT_EQ(fs::last_write_time(shuffle), written);
  EXPECT_TRUE(fs::exists(cache(std::string(k016Stem) + "-checksums.txt")));
  EXPECT_FALSE(fs::exists(cache(std::string(kNewerStem) + "-shuffle_index.npy")));
  EXPECT_EQ(fate_of(dataset, request_), CacheLog::Fate::kServed);
}

// Two samples swapped are still a permutation, which no look at the numbers alone finds (A13).
TEST_F(PublishedRun, SwappedSamplesAreNoticed) {
  const IndexedDataset dataset("d");
  const GptIndex built = load_or_build_gpt_index(dataset, request_);
  const fs::path shuffle = cache(std::string(kNewerStem) + "-shuffle_index.npy");
  const std::string good = read_text_file(shuffle);
  std::string bytes = good;
  std::swap_ranges(bytes.end() - 8, bytes.end() - 4, bytes.end() - 4);
  for (const bool with_checksums : {true, false}) {
    testing::write_text(shuffle, bytes);
    if (!with_checksums) fs::remove(cache(std::string(kNewerStem) + "-checksums.txt"));
    const GptIndex again = load_or_build_gpt_index(dataset, request_);
    EXPECT_EQ(values(again.shuffle_index), values(built.shuffle_index));
    EXPECT_EQ(read_text_file(shuffle), good);
  }
}

// Arrays and checksums of another seed's index, renamed, are not this one's.
TEST_F(PublishedRun, ChecksumsAreKeyedToTheDescription) {
  const IndexedDataset dataset("d");
  const GptIndex built = load_or_build_gpt_index(dataset, request_);
  GptIndexRequest other = request_;
  other.seed = 4321;
  (void)load_or_build_gpt_index(dataset, other);
  const std::string from = gpt_index_file_stem(other, MegatronVersion::kNewer);
  for (const char* affix :
       {"-document_index.npy", "-sample_index.npy", "-shuffle_index.npy", "-checksums.txt"}) {
    fs::copy_file(cache(from + affix), cache(std::string(kNewerStem) + affix),
                  fs::copy_options::overwrite_existing);
  }
  EXPECT_EQ(values(load_or_build_gpt_index(dataset, request_).shuffle_index),
            values(built.shuffle_index));
}

TEST_F(PublishedRun, DamagedCacheIsRebuilt) {
  const IndexedDataset dataset("d");
  const GptIndex built = load_or_build_gpt_index(dataset, request_);
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(cache(""))) {
    names.push_back(entry.path().filename());
  }
  int damages = 0;
  for (const std::string& name : names) {
    const std::string good = read_text_file(cache(name));
    std::vector<std::string> bad = {"", good.substr(0, good.size() - 1), good + "x"};
    // Values out of range and values that repeat: the last number takes the value of the first, or
    // the highest bit.
    std::string repeated = good;
    std::copy(good.end() - 8, good.end() - 4, repeated.end() - 4);
    bad.push_back(repeated);
    std::string high = good;
    high.back() = static_cast<char>(high.back() ^ 0x40);
    bad.push_back(high);
    for (const std::string& bytes : bad) {
      testing::write_text(cache(name), bytes);
      const GptIndex again = load_or_build_gpt_index(dataset, request_);
      EXPECT_EQ(values(again.document_index), values(built.document_index)) << name;
      EXPECT_EQ(values(again.sample_index), values(built.sample_index)) << name;
      EXPECT_EQ(values(again.shuffle_index), values(built.shuffle_index)) << name;
      EXPECT_EQ(read_text_file(cache(name)), good) << name;
      ++damages;
    }
  }
  EXPECT_EQ(damages, 25);
}

TEST_F(PublishedRun, CacheThatCannotBeWrittenChangesNothing) {
  testing::write_text("d-file", "in the way");
  request_.cache_path = "d-file";
  const IndexedDataset dataset("d");
  const GptIndex index = load_or_build_gpt_index(dataset, request_);
  request_.cache_path = "elsewhere";
  EXPECT_EQ(values(index.shuffle_index),
            values(load_or_build_gpt_index(dataset, request_).shuffle_index));
  EXPECT_FALSE(fs::exists("d"));
}

TEST_F(PublishedRun, EmptyPartIsNamed) {
  const IndexedDataset dataset("d");
  request_.split_matrix = parse_split("999,1");
  request_.split = DataSplit::kValid;
  try {
    (void)load_or_build_gpt_index(dataset, request_);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kData);
    EXPECT_NE(std::string(error.what()).find("10 sequences"), std::string::npos) << error.what();
  }
}

TEST_F(PublishedRun, ATooShortPartIsNamed) {
  const IndexedDataset dataset("d");
  request_.num_samples.reset();
  request_.sequence_length = 1'000'000;
  try {
    (void)load_or_build_gpt_index(dataset, request_);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kData);
    const std::string message = error.what();
    EXPECT_EQ(message.find("d, "), 0U) << message;
    EXPECT_NE(message.find("of its 10 sequences: "), std::string::npos) << message;
    EXPECT_NE(message.find("--seq-length 1000000"), std::string::npos) << message;
  }
}

// Every corpus, sample count and sequence length: the walk along the documents equals a plain
// search for token n * S.
TEST(GptIndex, SampleIndexIsTheLaidOutText) {
  const TempFolder folder;
  const std::vector<std::vector<int>> corpora = {
      {1, 1, 1, 1, 1, 1, 1, 1, 1}, {5}, {3, 40, 1, 2}, {0, 7, 0, 0, 9, 0}, {16, 16, 16}, {17, 31}};
  for (std::size_t c = 0; c < corpora.size(); ++c) {
    const std::string prefix = (folder.path() / std::to_string(c)).string();
    testing::write_corpus(prefix, testing::distinct_documents(corpora[c]));
    const IndexedDataset dataset(prefix);
    for (const std::int64_t sequence : {1, 2, 3, 4}) {
      const GptIndexSource source{&dataset, 0, dataset.num_sequences(), sequence, 7};
      for (std::int64_t samples = 1; samples < 40; ++samples) {
        const GptIndex index = build_gpt_index(source, samples);
        EXPECT_EQ(check_gpt_index(source, index), std::nullopt);
        std::vector<std::pair<std::int64_t, std::int64_t>> flat;
        for (std::int64_t place = 0; place < index.document_index.size(); ++place) {
          const auto length = dataset.sequence_length(index.document_index[place]);
          for (std::int64_t t = 0; t < length; ++t) flat.emplace_back(place, t);
        }
        ASSERT_EQ(index.num_samples(), (static_cast<std::int64_t>(flat.size()) - 1) / sequence);
        for (std::int64_t n = 1; n <= index.num_samples(); ++n) {
          const auto& [place, token] = flat[static_cast<std::size_t>(n * sequence)];
          ASSERT_EQ(index.sample_index[2 * n], place);
          ASSERT_EQ(index.sample_index[2 * n + 1], token);
        }
      }
    }
  }
}

TEST(Cases, MegatronLM_176) {
  // Samples exactly at, one below and one above every epoch boundary.
  const TempFolder folder;
  const std::string prefix = (folder.path() / "c").string();
  testing::write_corpus(prefix, testing::distinct_documents({37, 20, 8, 51}));
  const IndexedDataset dataset(prefix);
  bool separate = false;
  bool together = false;
  for (const std::int64_t sequence : {5, 16}) {
    const GptIndexSource source{&dataset, 0, 4, sequence, 1234};
    const std::int64_t per_epoch = 116;
    for (std::int64_t epochs = 1; epochs <= 6; ++epochs) {
      const std::int64_t boundary = (epochs * per_epoch - 1) / sequence;
      for (const std::int64_t samples : {boundary - 1, boundary, boundary + 1}) {
        const GptIndex index = build_gpt_index(source, samples);
        EXPECT_EQ(check_gpt_index(source, index), std::nullopt);
        EXPECT_EQ(index.plan.num_epochs, samples <= boundary ? epochs : epochs + 1);
        EXPECT_GE(index.num_samples(), samples);
        (index.plan.separate_last_epoch ? separate : together) = true;
      }
    }
  }
  EXPECT_TRUE(separate && together);
}

TEST(Cases, MegatronLM_697) {
  // Two epochs of ten documents: shuffled across both unless the last is separate; each document
  // twice either way.
  const TempFolder folder;
  const std::string prefix = (folder.path() / "c").string();
  testing::write_corpus(prefix, testing::distinct_documents(std::vector<int>(10, 16)));
  const IndexedDataset dataset(prefix);
  const GptIndexSource source{&dataset, 0, 10, 4, 1234};
  for (const std::int64_t samples : {45, 75}) {
    const GptIndex index = build_gpt_index(source, samples);
    ASSERT_EQ(index.plan.num_epochs, 2);
    EXPECT_EQ(index.plan.separate_last_epoch, samples == 45);
    std::map<std::int64_t, int> count;
    std::map<std::int64_t, int> first_epoch;
    for (std::int64_t i = 0; i < 20; ++i) {
      ++count[index.document_index[i]];
      if (i < 10) ++first_epoch[index.document_index[i]];
    }
    EXPECT_EQ(count.size(), 10U);
    for (const auto& [document, times] : count) EXPECT_EQ(times, 2) << document;
    EXPECT_EQ(first_epoch.size() == 10U, samples == 45);
  }
}

}  // namespace
}  // namespace pentatron::datasets
