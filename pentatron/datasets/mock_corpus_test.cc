// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/mock_corpus.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/base/sha256.h"
#include "pentatron/base/temp_folder.h"
#include "pentatron/datasets/gpt_dataset.h"
#include "pentatron/datasets/gpt_parts_test_support.h"
#include "pentatron/datasets/test_corpus.h"

namespace pentatron::datasets {
namespace {

using Tokens = std::vector<std::int64_t>;

std::string hash_of(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.hex_digest();
}

Tokens all_tokens(const Corpus& corpus, std::int64_t sequence) {
  Tokens tokens(static_cast<std::size_t>(corpus.sequence_length(sequence)));
  corpus.read(sequence, 0, tokens);
  return tokens;
}

GptDatasetOptions mock_options(std::int64_t sequence_length) {
  GptDatasetOptions with;
  with.mock_data = true;
  with.split = "1,1,1";
  with.sequence_length = sequence_length;
  with.vocab_size = 1000;
  with.eod = 999;
  return with;
}

TEST(MockCorpus, LengthsAreNumpys) {
  const MockCorpus corpus(1000, 999);
  ASSERT_EQ(corpus.num_sequences(), 100'000);
  std::vector<std::int32_t> lengths;
  for (std::int64_t i = 0; i < 100'000; ++i) lengths.push_back(corpus.sequence_length(i));
  EXPECT_EQ(std::vector<std::int32_t>(lengths.begin(), lengths.begin() + 12),
            (std::vector<std::int32_t>{3484, 2609, 2094, 1105, 1261, 168, 309, 68, 718, 3331, 2660,
                                       3738}));
  EXPECT_EQ(std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0}), 204'637'097);
  // Of NumPy's array of int32.
  EXPECT_EQ(hash_of(std::as_bytes(std::span(lengths))),
            "ed8f44f17361fd0c689e0af757ac685fff85bc309c50f698ffb2aac84ebd4cea");
}

TEST(MockCorpus, CountsModuloTheVocabularyAndEnds) {
  const MockCorpus corpus(10, 3);
  const Tokens tokens = all_tokens(corpus, 7);
  ASSERT_EQ(tokens.size(), 68U);
  for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
    EXPECT_EQ(tokens[i], static_cast<std::int64_t>((i + 1) % 10));
  }
  EXPECT_EQ(tokens.back(), 3);
  for (const std::size_t offset : {0U, 1U, 40U, 67U, 68U}) {
    Tokens rest(tokens.size() - offset);
    corpus.read(7, static_cast<std::int64_t>(offset), rest);
    EXPECT_TRUE(std::equal(rest.begin(), rest.end(), tokens.begin() + static_cast<int>(offset)));
  }
  std::int64_t shortest = 0;
  while (corpus.sequence_length(shortest) != 1) ++shortest;
  EXPECT_EQ(all_tokens(corpus, shortest), Tokens{3});
}

TEST(MockCorpus, RefusesPlacesOutsideAndImpossibleEnds) {
  const MockCorpus corpus(10, 3);
  Tokens tokens(69);
  EXPECT_THROW(corpus.read(7, 0, tokens), Error);
  EXPECT_THROW(corpus.read(7, -1, std::span(tokens).first(1)), Error);
  EXPECT_THROW(corpus.read(100'000, 0, std::span(tokens).first(1)), Error);
  EXPECT_THROW((void)corpus.sequence_length(-1), Error);
  EXPECT_THROW(MockCorpus(10, 10), Error);
  EXPECT_THROW(MockCorpus(0, 0), Error);
}

// The first five samples of a part, as an independent script drew them with NumPy's RandomState.
void expect_part(const GptDataset& part, std::int64_t num_samples, const std::string& documents,
                 const std::string& shuffle, const std::string& tokens) {
  EXPECT_EQ(part.num_samples(), num_samples);
  EXPECT_EQ(hash_of(part.index().document_index.bytes()), documents);
  EXPECT_EQ(hash_of(part.index().shuffle_index.bytes()), shuffle);
  Sha256 hash;
  for (std::int64_t i = 0; i < 5; ++i) {
    const GptText text = part.text(i);
    ASSERT_EQ(text.tokens.size(), 4097U);
    hash.update(std::as_bytes(std::span(text.tokens)));
  }
  EXPECT_EQ(hash.hex_digest(), tokens);
}

TEST(MockData, PartsAreMegatrons) {
  // 40,000 training samples of 4,096 tokens need a third epoch, which is shuffled apart.
  const GptParts sets =
      build_gpt_parts(mock_options(4096), {.train = 40'000, .valid = 5, .test = 7});
  ASSERT_TRUE(sets.train && sets.valid && sets.test);
  EXPECT_TRUE(sets.train->index().plan.separate_last_epoch);
  expect_part(*sets.train, 49'944,
              "6c387b4b770ccc270e74cf6a7e510ba29e6edcfb8ce653ea8f698eaf2573c0e8",
              "93f8ee7665e8564b8f40c9921bae7e8256efcd938ff13d81261d30bf81c2235c",
              "60d42d452db0d6e8eefc0a5b8a6b6055477f1fb88fd3e6a6662f971159855875");
  expect_part(*sets.valid, 16'640,
              "1607cc2932d84080e3c08860453085ccfb09652b48c476b917eab287a7a70c18",
              "02c4f083cf28b5b1e6b26c791fe9462e71687c2a589701ff48e61a71f1e48cc2",
              "8685e810885b0d11469c07a49a64d602b0abeadf45f7df74e4471eed1c8cb151");
  expect_part(*sets.test, 16'671,
              "1213aa1d9501d3071108a9a12b254656305cba7baf4b24a7d99330f0717c04b8",
              "e8da8aa2897e031df5fb6d2f66e7be2b11291f425faf045c6574c98e2e33c00d",
              "b644ea79373b9ed1c7bf246db26efff7f6d7688aaa0617a9481f539e7f2ef1ce");
}

TEST(MockData, TouchesNoFiles) {
  const TempFolder folder;
  const testing::WorkingFolder inside(folder.path());
  const GptParts sets = build_gpt_parts(mock_options(4096), {.train = 2, .valid = 0, .test = 2});
  EXPECT_TRUE(sets.train && sets.test);
  EXPECT_FALSE(sets.valid);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(MockData, CountsByTheTokenizersVocabulary) {
  GptDatasetOptions with = mock_options(4096);
  with.tokenizer_vocab_size = 50;  // the model's 1,000 rows are more than the tokenizer has
  with.eod = 49;
  const GptParts sets = build_gpt_parts(with, {.train = 1, .valid = 0, .test = 0});
  const GptText text = sets.train->text(0);
  EXPECT_EQ(*std::max_element(text.tokens.begin(), text.tokens.end()), 49);
  EXPECT_EQ(sets.corpus->identity(), MockCorpus(50, 49).identity());
}

TEST(MockData, EmptyPartsAreNamed) {
  GptDatasetOptions with = mock_options(4096);
  with.split = "1,0,1";
  try {
    (void)build_gpt_parts(with, {.train = 1, .valid = 1, .test = 0});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kData);
    EXPECT_NE(std::string(error.what()).find("--mock-data has 100000 sequences"), std::string::npos)
        << error.what();
  }
}

TEST(CorpusIdentity, DiffersWithTheTokensAndNotWithThePlace) {
  const TempFolder folder;
  const auto identity = [&](const std::string& name, const testing::Documents& documents,
                            TokenDtype dtype, bool mmap) {
    const std::string prefix = (folder.path() / name).string();
    testing::write_corpus(prefix, documents, dtype);
    return IndexedDataset(prefix, {.mmap_bin_files = mmap}).identity();
  };
  const std::string first = identity("a", {{1, 2, 3}, {4}}, TokenDtype::kUint16, true);
  EXPECT_EQ(identity("b", {{1, 2, 3}, {4}}, TokenDtype::kUint16, false), first);
  EXPECT_NE(identity("c", {{1, 2}, {3, 4}}, TokenDtype::kUint16, true), first);
  EXPECT_NE(identity("d", {{1, 2, 3}, {4}}, TokenDtype::kInt32, true), first);
  EXPECT_NE(identity("e", {{1, 2, 3}, {4}, {5}}, TokenDtype::kUint16, true), first);
  EXPECT_EQ(first.find(folder.path().string()), std::string::npos);
  EXPECT_EQ(MockCorpus(10, 3).identity(), MockCorpus(10, 3).identity());
  EXPECT_NE(MockCorpus(10, 3).identity(), MockCorpus(11, 3).identity());
  EXPECT_NE(MockCorpus(10, 3).identity(), MockCorpus(10, 4).identity());
}

}  // namespace
}  // namespace pentatron::datasets
