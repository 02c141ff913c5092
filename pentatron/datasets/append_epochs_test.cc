// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "pentatron/base/error.h"
#include "pentatron/base/temp_folder.h"
#include "pentatron/datasets/gpt_sources.h"
#include "pentatron/datasets/test_corpus.h"

// Runs that are made longer (--append-epochs).
namespace pentatron::datasets {
namespace {

using Texts = std::vector<std::vector<std::int64_t>>;

Texts texts_of(const SampleSource& source, std::int64_t begin, std::int64_t end) {
  Texts texts;
  for (std::int64_t i = begin; i < end; ++i) texts.push_back(source.sample(i).ids("tokens"));
  return texts;
}

class AppendedEpochs : public ::testing::Test {
 protected:
  AppendedEpochs() {
    for (const char* name : {"a", "b"}) {
      testing::Documents documents = testing::distinct_documents(std::vector<int>(10, 9));
      for (auto& document : documents) {
        for (std::int32_t& token : document) token += name[0] == 'b' ? 1000 : 0;
      }
      testing::write_corpus(prefix(name), documents);
    }
  }
  [[nodiscard]] std::string prefix(const char* name) const {
    return (folder_.path() / name).string();
  }
  [[nodiscard]] GptDatasetOptions options() const {
    GptDatasetOptions options;
    options.data_path = prefix("a");
    options.split = "1";
    options.sequence_length = 4;
    options.vocab_size = 2000;
    options.data_cache_path = (folder_.path() / "cache").string();
    return options;
  }
  [[nodiscard]] GptDataset make(std::vector<std::int64_t> before, std::int64_t count) const {
    GptDatasetOptions with = options();
    with.planned_before = std::move(before);
    return {open_gpt_corpus(with), with, DataSplit::kTrain, count};
  }
  [[nodiscard]] GptSources blend(std::vector<double> weights, std::vector<std::int64_t> before,
                                 std::int64_t count) const {
    MixOptions mix;
    mix.blend = {.prefixes = {prefix("a"), prefix("b")}, .weights = std::move(weights)};
    mix.train_before = std::move(before);
    return build_gpt_sources({.dataset = options(), .mix = std::move(mix)}, {.train = count});
  }

  TempFolder folder_;
};

TEST_F(AppendedEpochs, KeepTheOrder) {
  // 90 tokens an epoch: 22 samples of 4.
  const GptDataset first = make({}, 30);
  ASSERT_EQ(first.num_samples(), 44);  // two epochs
  const GptDataset longer = make({30}, 100);
  ASSERT_EQ(longer.num_samples(), 44 + 67);  // (3 * 90 - 1) / 4
  EXPECT_EQ(texts_of(longer, 0, 44), texts_of(first, 0, 44));
  EXPECT_NE(texts_of(make({}, 100), 0, 44), texts_of(first, 0, 44)) << "nothing was to be kept";
  // Each of the three further epochs has every document: 67 samples have 67 different places of 270
  // tokens, no token more than three times.
  std::map<std::int64_t, int> times;
  for (const auto& text : texts_of(longer, 44, 111)) {
    for (const std::int64_t token : text) ++times[token];
  }
  EXPECT_EQ(times.size(), 90U);
  for (const auto& [token, count] : times) EXPECT_LE(count, 3) << token;
  // Once more, and once more within what is there.
  const GptDataset longest = make({30, 100}, 300);
  EXPECT_EQ(texts_of(longest, 0, 111), texts_of(longer, 0, 111));
  EXPECT_GE(longest.num_samples(), 300);
  EXPECT_EQ(make({30, 100}, 111).identity(), longer.identity());
  // Another epoch each time, not the first again.
  EXPECT_NE(texts_of(longest, 0, 22), texts_of(longest, 111, 133));
  EXPECT_NE(texts_of(longest, 44, 66), texts_of(longest, 111, 133));
}

TEST_F(AppendedEpochs, IdentityTellsThem) {
  const std::string first = make({}, 30).identity();
  EXPECT_EQ(make({30}, 44).identity(), first);  // the epochs that were planned suffice
  const std::string longer = make({30}, 100).identity();
  EXPECT_NE(longer, first);
  EXPECT_NE(longer, make({}, 100).identity());
  EXPECT_NE(longer, make({20}, 100).identity());
  EXPECT_EQ(make({30}, 100).identity(), longer);
  EXPECT_THROW((void)make({30}, 20), Error);
  EXPECT_THROW((void)make({30, 10}, 50), Error);
}

TEST_F(AppendedEpochs, BlendsKeepTheirOrder) {
  for (const std::vector<double>& weights : {std::vector<double>{3, 1}, std::vector<double>{}}) {
    const bool weighted = !weights.empty();
    // Without weights each corpus is there once: 44 samples.
    const std::int64_t short_run = weighted ? 40 : 15;
    const std::int64_t long_run = weighted ? 400 : 44;
    const GptSources first = blend(weights, {}, short_run);
    const GptSources longer = blend(weights, {short_run}, long_run);
    EXPECT_GE(longer.train->num_samples(), long_run);
    EXPECT_EQ(texts_of(*longer.train, 0, short_run), texts_of(*first.train, 0, short_run));
    EXPECT_NE(longer.train->identity(), first.train->identity());
    if (!weighted) continue;
    EXPECT_NE(texts_of(*blend(weights, {}, long_run).train, 0, short_run),
              texts_of(*first.train, 0, short_run))
        << "nothing was to be kept";
    const Texts all = texts_of(*longer.train, 0, long_run);
    const auto of_b = std::ranges::count_if(all, [](const auto& text) { return text[0] >= 1000; });
    EXPECT_EQ(of_b, 100);
  }
}

}  // namespace
}  // namespace pentatron::datasets
