// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/blend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>
#include <span>

#include "pentatron/base/error.h"
#include "pentatron/base/sha256.h"
#include "pentatron/base/temp_folder.h"
#include "pentatron/base/test_support.h"
#include "pentatron/datasets/blend_index.h"
#include "pentatron/datasets/blended_dataset.h"
#include "pentatron/datasets/for_each_member.h"
#include "pentatron/datasets/gpt_sources.h"
#include "pentatron/datasets/test_corpus.h"

namespace pentatron::datasets {
namespace {

using Words = std::vector<std::string>;

TEST(Blend, ReadsMegatronsLists) {
  const auto parsed = [](const Words& words) { return parse_blend(words, "--data-path"); };
  EXPECT_EQ(parsed({"a"}).prefixes, Words{"a"});
  EXPECT_FALSE(parsed({"a"}).has_weights());
  const Blend weighted = parsed({"30", "a", " 0.7 ", " b "});
  EXPECT_EQ(weighted.prefixes, (Words{"a", "b"}));
  EXPECT_EQ(weighted.weights, (std::vector<double>{30.0, 0.7}));
  EXPECT_EQ(parsed({"1e-2", "a"}).weights, std::vector<double>{0.01});
  EXPECT_EQ(parsed({"+.5", "a"}).weights, std::vector<double>{0.5});
  // Two prefixes, and an odd number of words, are no weights.
  EXPECT_EQ(parsed({"a", "b"}).prefixes, (Words{"a", "b"}));
  EXPECT_EQ(parsed({"1", "2", "3"}).prefixes, (Words{"1", "2", "3"}));
}

TEST(Blend, RefusesWhatIsNoBlend) {
  const auto refuse = [](const Words& words, std::string_view part) {
    expect_error(ErrorKind::kConfig, part, [&] { (void)parse_blend(words, "--data-path"); });
  };
  refuse({"1", "a", "b", "c"}, "1 are numbers and 1 are not");
  refuse({"0", "a"}, "above 0");
  refuse({"-1", "a", "2", "b"}, "above 0");
  refuse({"inf", "a"}, "above 0");
  refuse({"nan", "a"}, "above 0");
  refuse({""}, "an empty prefix");
  refuse(Words(32'767, "a"), "at most 32766");
}

TEST(Blend, ReadsFiles) {
  const TempFolder folder;
  const std::string path = (folder.path() / "list").string();
  testing::write_text(path, "0.5 a\n\n 0.5\tb\n");
  EXPECT_EQ(read_blend_words(path), (Words{"0.5", "a", "0.5", "b"}));
  testing::write_text(path, " \n");
  expect_error(ErrorKind::kConfig, "holds no words", [&] { (void)read_blend_words(path); });
  testing::write_text(path, R"({"train": ["1", "a", "2", "b"], "valid": "c d", "test": null})");
  const SplitWords words = read_split_words(path);
  EXPECT_EQ(words.train, (Words{"1", "a", "2", "b"}));
  EXPECT_EQ(words.valid, (Words{"c", "d"}));
  EXPECT_TRUE(words.test.empty());
  for (const char* text : {"[]", R"({"train": 1})", R"({"train": [1]})", R"({"trian": "a"})"}) {
    testing::write_text(path, text);
    expect_error(ErrorKind::kConfig, "--per-split-data-args-path",
                 [&] { (void)read_split_words(path); });
  }
}

std::string md5_of(const std::vector<double>& values) {
  std::string bytes(values.size() * sizeof(double), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return md5_hex(bytes);
}

// Bytes of w / numpy.sum(w), NumPy 2.4.6: the order of summation shows in the last bits.
TEST(Blend, WeightsAreNormalizedAsNumPyDoes) {
  std::vector<double> weights;
  for (int i = 0; i < 300; ++i) weights.push_back(0.1 * (i % 7 + 1) + 0.001 * i);
  const auto first = [&](std::size_t n) {
    return md5_of(normalized_weights(std::span(weights).first(n)));
  };
  EXPECT_EQ(first(3), "d5ed7cf6037356b8929a7ed38ff4070a");
  EXPECT_EQ(first(20), "e3f7435ae884b76f631b4a9395d9aeb5");
  EXPECT_EQ(first(129), "8826545525743ffdb91794ab412953ec");
  EXPECT_EQ(first(300), "90831d75c8a56a1f46c2e91db4608d38");
}

TEST(Blend, TargetsAreRoundedUp) {
  const std::vector<double> weights = {0.3, 0.7};
  EXPECT_EQ(blend_targets(weights, 10), (std::vector<std::int64_t>{3, 7}));
  EXPECT_EQ(blend_targets(weights, 11), (std::vector<std::int64_t>{4, 8}));
  EXPECT_EQ(with_surplus(1000, 0.005), 1005);
  EXPECT_EQ(with_surplus(1, 0.005), 2);
  EXPECT_EQ(with_surplus(7, 0.0), 7);
}

// The definition, every member looked at for every sample.
BlendIndex plain_index(const std::vector<double>& weights, std::int64_t size) {
  BlendIndex index;
  std::vector<std::int64_t> drawn(weights.size(), 0);
  for (std::int64_t i = 0; i < size; ++i) {
    const auto at = static_cast<double>(std::max<std::int64_t>(i, 1));
    std::size_t best = 0;
    double largest = weights[0] * at - static_cast<double>(drawn[0]);
    for (std::size_t m = 1; m < weights.size(); ++m) {
      const double lag = weights[m] * at - static_cast<double>(drawn[m]);
      if (lag <= largest) continue;
      largest = lag;
      best = m;
    }
    index.members.push_back(static_cast<std::int16_t>(best));
    index.samples.push_back(drawn[best]++);
  }
  return index;
}

// Computed by hand with Python for the weights 0.2, 0.5, 0.3.
TEST(BlendIndex, DrawsWhatLagsMost) {
  const std::vector<double> weights = {0.2, 0.5, 0.3};
  const BlendIndex index = build_blend_index(weights, 20);
  EXPECT_EQ(index.members, (std::vector<std::int16_t>{1, 2, 0, 1, 2, 1, 0, 1, 2, 1,
                                                      0, 1, 2, 1, 2, 1, 0, 1, 2, 1}));
  EXPECT_EQ(index.samples, (std::vector<std::int64_t>{0, 0, 0, 1, 1, 2, 1, 3, 2, 4,
                                                      2, 5, 3, 6, 4, 7, 3, 8, 5, 9}));
}

TEST(BlendIndex, EqualsTheDefinition) {
  std::mt19937_64 random(5);
  std::lognormal_distribution<double> skewed(0.0, 2.0);
  for (int round = 0; round < 60; ++round) {
    const std::size_t members = round < 45 ? 1 + random() % 30 : 200 + random() % 200;
    std::vector<double> weights(members);
    for (double& weight : weights) {
      weight = round % 3 == 0   ? 1.0  // many ties
               : round % 3 == 1 ? static_cast<double>(1 + random() % 50)
                                : skewed(random);
    }
    weights = normalized_weights(weights);
    const BlendIndex expected = plain_index(weights, 5000);
    const BlendIndex index = build_blend_index(weights, 5000);
    ASSERT_EQ(index.members, expected.members) << members << " members";
    ASSERT_EQ(index.samples, expected.samples) << members << " members";
  }
}

TEST(BlendIndex, ExhaustiveDrawsEverySampleOnce) {
  const std::vector<std::int64_t> sizes = {3, 0, 40, 1, 500};
  const BlendIndex index = build_exhaustive_blend_index(sizes);
  ASSERT_EQ(index.size(), 544);
  std::vector<std::int64_t> drawn(sizes.size(), 0);
  for (std::int64_t i = 0; i < index.size(); ++i) {
    const auto member = static_cast<std::size_t>(index.members[static_cast<std::size_t>(i)]);
    EXPECT_EQ(index.samples[static_cast<std::size_t>(i)], drawn[member]++);
  }
  EXPECT_EQ(drawn, sizes);
  EXPECT_EQ(index.members[0], 4);
}

// Texts of Python's json.dumps(indent=4) of an OrderedDict of that shape.
TEST(BlendedDataset, DescriptionIsPythons) {
  const std::string first =
      "{\n    \"class\": \"GPTDataset\",\n    \"n\": 1,\n    \"list\": [\n        [\n            "
      "0,\n"
      "            0.5\n        ],\n        null\n    ]\n}";
  const std::string second = "{\n    \"class\": \"B\",\n    \"path\": \"\\u00e4\\\"\"\n}";
  EXPECT_EQ(md5_hex(blend_description({first, second}, {0.3, 0.7}, {}, 30, DataSplit::kTrain)),
            "6f999dbc99bd2cf1c9c69a888cb30735");
  EXPECT_EQ(
      md5_hex(blend_description({first, second}, {}, {5, 12}, std::nullopt, DataSplit::kValid)),
      "bab8f45f63da21c0c952202701e54b2d");
}

class GptBlend : public ::testing::Test {
 protected:
  // Two corpora whose tokens tell them apart.
  GptBlend() {
    testing::write_corpus(prefix("low"), testing::distinct_documents(std::vector<int>(10, 9)));
    testing::Documents high = testing::distinct_documents(std::vector<int>(20, 9));
    for (auto& document : high) {
      for (std::int32_t& token : document) token += 1000;
    }
    testing::write_corpus(prefix("high"), high);
  }
  std::string prefix(const char* name) const { return (folder_.path() / name).string(); }
  GptSourceOptions options(std::vector<double> weights) const {
    GptSourceOptions options;
    options.dataset.split = "8,2,0";
    options.dataset.sequence_length = 4;
    options.dataset.vocab_size = 2000;
    options.dataset.data_cache_path = (folder_.path() / "cache").string();
    options.mix.blend = {.prefixes = {prefix("low"), prefix("high")},
                         .weights = std::move(weights)};
    return options;
  }
  static std::int64_t num_high(const SampleSource& source) {
    std::int64_t count = 0;
    for (std::int64_t i = 0; i < source.num_samples(); ++i) {
      const Sample sample = source.sample(i);
      count += sample.ids("tokens").at(0) >= 1000 ? 1 : 0;
    }
    return count;
  }

  TempFolder folder_;
};

TEST_F(GptBlend, FollowsItsWeights) {
  const GptSources sources = build_gpt_sources(options({3, 1}), {.train = 100, .valid = 9});
  ASSERT_TRUE(sources.train && sources.valid);
  EXPECT_FALSE(sources.test);
  EXPECT_EQ(sources.corpora.size(), 2U);
  EXPECT_EQ(sources.train->num_samples(), 100);
  EXPECT_EQ(num_high(*sources.train), 25);
  EXPECT_EQ(sources.valid->num_samples(), 10);  // ceil(6.75) + ceil(2.25)
  EXPECT_EQ(num_high(*sources.valid), 3);
}

TEST_F(GptBlend, SizesDecideWithoutWeights) {
  // 18 and 36 tokens a document of 9: one epoch of 8 tenths of 10 and of 20 documents.
  const GptSources sources = build_gpt_sources(options({}), {.train = 1000});
  EXPECT_EQ(sources.train->num_samples(), (72 - 1) / 4 + (144 - 1) / 4);
  EXPECT_EQ(num_high(*sources.train), (144 - 1) / 4);
  EXPECT_EQ(build_gpt_sources(options({}), {.train = 6}).train->num_samples(), 6);
  GptSourceOptions whole = options({});
  whole.mix.full_validation = true;
  const GptSources validated = build_gpt_sources(whole, {.train = 6, .valid = 1});
  EXPECT_EQ(validated.valid->num_samples(), (18 - 1) / 4 + (36 - 1) / 4);
  whole = options({1, 1});
  whole.mix.full_validation = true;
  expect_error(ErrorKind::kConfig, "--full-validation",
               [&] { (void)build_gpt_sources(whole, {.train = 6, .valid = 1}); });
}

TEST_F(GptBlend, CacheIsReadAndMended) {
  const auto identity = [&] {
    return build_gpt_sources(options({3, 1}), {.train = 100}).train->identity();
  };
  const std::string drawn = identity();
  std::filesystem::path order;
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path() / "cache")) {
    const std::string name = entry.path().filename().string();
    if (name.find("BlendedDataset-train-") == std::string::npos) continue;
    ++files;
    if (name.ends_with("-dataset_index.npy")) order = entry.path();
  }
  EXPECT_EQ(files, 4);
  const auto written = std::filesystem::last_write_time(order);
  EXPECT_EQ(identity(), drawn);
  EXPECT_EQ(std::filesystem::last_write_time(order), written) << "drawn anew";
  // A number of a member that is not there.
  std::string bytes = read_text_file(order);
  bytes.back() = '\x7f';
  testing::write_text(order, bytes);
  EXPECT_EQ(identity(), drawn);
  EXPECT_NE(read_text_file(order), bytes) << "not rebuilt";
  // Other weights are another order.
  EXPECT_NE(build_gpt_sources(options({1, 1}), {.train = 100}).train->identity(), drawn);
}

// In the text that checkpoints hold, and in the order of the members whichever thread is first.
TEST_F(GptBlend, IdentityIsOfTheOrderAndEachMember) {
  const GptSources sources = build_gpt_sources(options({3, 1}), {.train = 100});
  const auto& blend = dynamic_cast<const BlendedDataset&>(*sources.train);
  std::vector<std::int16_t> order;
  for (std::int64_t i = 0; i < blend.num_samples(); ++i) {
    order.push_back(static_cast<std::int16_t>(blend.member(i)));
  }
  Sha256 hash;
  hash.update(std::as_bytes(std::span(order)));
  const std::string text = blend.identity();
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json.size(), 2U);
  EXPECT_EQ(json.at("dataset_index"), hash.hex_digest());
  ASSERT_EQ(json.at("members").size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    const auto member = nlohmann::json::parse(json["members"][i].get<std::string>());
    EXPECT_EQ(member.at("corpus"), sources.corpora[i]->identity()) << i;
  }
  EXPECT_EQ(text, json.dump());
}

TEST(ForEachMember, CallsEachOnceAndThrowsTheFirstError) {
  std::vector<int> calls(1000, 0);
  for_each_member(calls.size(), [&](std::size_t i) { ++calls[i]; });
  EXPECT_EQ(calls, std::vector<int>(1000, 1));
  for_each_member(0, [&](std::size_t) { ADD_FAILURE() << "nothing to call it for"; });
  expect_error(ErrorKind::kData, "member 7 is bad", [&] {
    for_each_member(calls.size(),
                    [&](std::size_t i) { PENTATRON_CHECK(i != 7, kData, "member {} is bad", i); });
  });
}

// Weights that sum to anything draw what the same shares draw.
TEST(Cases, MegatronLM_547) {
  const std::vector<double> shares = normalized_weights(std::vector<double>{30, 70});
  EXPECT_EQ(shares, normalized_weights(std::vector<double>{0.3, 0.7}));
  const BlendIndex index = build_blend_index(shares, 1000);
  EXPECT_EQ(std::ranges::count(index.members, 0), 300);
  EXPECT_EQ(std::ranges::count(index.members, 1), 700);
}

TEST_F(GptBlend, ErrorsNameTheCorpus) {
  GptSourceOptions missing = options({});
  missing.mix.blend.prefixes.push_back(prefix("missing"));
  expect_error(ErrorKind::kIo, "missing", [&] { (void)build_gpt_sources(missing, {.train = 5}); });
}

}  // namespace
}  // namespace pentatron::datasets
