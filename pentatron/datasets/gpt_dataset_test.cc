// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/gpt_dataset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/base/temp_folder.h"
#include "pentatron/datasets/data_loader.h"
#include "pentatron/datasets/global_batch_plan.h"
#include "pentatron/datasets/gpt_parts_test_support.h"
#include "pentatron/datasets/test_corpus.h"
#include "pentatron/tokenizers/null_tokenizer.h"

namespace pentatron::datasets {
namespace {

class GptDatasetFolder {
 public:
  GptDatasetOptions options(std::int64_t sequence_length, std::int64_t vocab_size = 60000) {
    GptDatasetOptions with;
    with.data_path = (folder_.path() / "c").string();
    with.split = "100";
    with.sequence_length = sequence_length;
    with.vocab_size = vocab_size;
    with.eod = vocab_size - 1;
    with.tokenizer = tokenizers::NullTokenizer(vocab_size).description();
    return with;
  }
  GptDataset make(const GptDatasetOptions& with, std::optional<std::int64_t> samples) {
    return GptDataset(std::make_shared<const IndexedDataset>(with.data_path), with,
                      DataSplit::kTrain, samples);
  }

 private:
  TempFolder folder_;
};

class GptDatasetFiles : public ::testing::Test, public GptDatasetFolder {};

using Tokens = std::vector<std::int64_t>;

// The text of all samples in the order of the sample index is the shuffled sequences laid end to
// end.
void expect_stream(const GptDataset& dataset, const IndexedDataset& corpus) {
  Tokens flat;
  std::vector<bool> starts;
  const GptIndex& index = dataset.index();
  for (std::int64_t i = 0; i < index.document_index.size(); ++i) {
    const Tokens tokens = testing::read_sequence(corpus, index.document_index[i]);
    for (std::size_t t = 0; t < tokens.size(); ++t) starts.push_back(t == 0);
    flat.insert(flat.end(), tokens.begin(), tokens.end());
  }
  const std::int64_t sequence = dataset.length(0);
  std::vector<bool> seen(static_cast<std::size_t>(dataset.num_samples()), false);
  for (std::int64_t i = 0; i < dataset.num_samples(); ++i) {
    const std::int64_t entry = index.shuffle_index[i];
    seen[static_cast<std::size_t>(entry)] = true;
    const GptText text = dataset.text(i);
    const auto begin = flat.begin() + entry * sequence;
    ASSERT_EQ(text.tokens, Tokens(begin, begin + sequence + 1)) << "sample " << i;
    Tokens expected_starts;
    for (std::int64_t t = 0; t <= sequence; ++t) {
      if (starts[static_cast<std::size_t>(entry * sequence + t)]) expected_starts.push_back(t);
    }
    ASSERT_EQ(text.sequence_starts, expected_starts) << "sample " << i;
  }
  EXPECT_EQ(std::count(seen.begin(), seen.end(), true), dataset.num_samples());
}

TEST(GptSample, PlainMasks) {
  const Sample sample = make_gpt_sample({5, 9, 6, 7, 9, 8}, 9, {});
  EXPECT_EQ(sample.ids("tokens"), (Tokens{5, 9, 6, 7, 9}));
  EXPECT_EQ(sample.ids("labels"), (Tokens{9, 6, 7, 9, 8}));
  EXPECT_EQ(sample.weights("loss_mask"), std::vector<float>(5, 1.0F));
  EXPECT_EQ(sample.sequence("text").positions, (Tokens{0, 1, 2, 3, 4}));
  EXPECT_EQ(sample.sequence("text").runs, std::vector<std::int32_t>{5});
}

TEST(GptSample, EachMaskOptionByItself) {
  const Tokens text = {5, 9, 6, 7, 9, 8, 4};
  const Sample positions = make_gpt_sample(text, 9, {.reset_position_ids = true});
  EXPECT_EQ(positions.sequence("text").positions, (Tokens{0, 1, 0, 1, 2, 0}));
  EXPECT_EQ(positions.sequence("text").runs, std::vector<std::int32_t>{6});
  EXPECT_EQ(positions.weights("loss_mask"), std::vector<float>(6, 1.0F));
  const Sample attention = make_gpt_sample(text, 9, {.reset_attention_mask = true});
  EXPECT_EQ(attention.sequence("text").runs, (std::vector<std::int32_t>{2, 3, 1}));
  EXPECT_EQ(attention.sequence("text").positions, (Tokens{0, 1, 2, 3, 4, 5}));
  const Sample loss = make_gpt_sample(text, 9, {.eod_mask_loss = true});
  EXPECT_EQ(loss.weights("loss_mask"), (std::vector<float>{1, 0, 1, 1, 0, 1}));
  EXPECT_EQ(loss.sequence("text").runs, std::vector<std::int32_t>{6});
}

TEST(GptSample, EodAtTheEdges) {
  const GptMaskOptions all{
      .reset_position_ids = true, .reset_attention_mask = true, .eod_mask_loss = true};
  // First and last input token; the last label is an EOD too, which is no input and resets nothing.
  const Sample sample = make_gpt_sample({9, 9, 3, 9, 9}, 9, all);
  EXPECT_EQ(sample.sequence("text").positions, (Tokens{0, 0, 0, 1}));
  EXPECT_EQ(sample.sequence("text").runs, (std::vector<std::int32_t>{1, 1, 2}));
  EXPECT_EQ(sample.weights("loss_mask"), (std::vector<float>{0, 0, 1, 0}));
}

// Megatron's rule for a padding token of its own (N1).
TEST(GptSample, PaddingIsNotPredicted) {
  const Sample sample = make_gpt_sample({5, 7, 7, 9, 7, 6}, 9, {.pad = 7});
  EXPECT_EQ(sample.ids("tokens"), (Tokens{5, 0, 0, 9, 0}));
  EXPECT_EQ(sample.ids("labels"), (Tokens{0, 0, 9, 0, 6}));
  EXPECT_EQ(sample.weights("loss_mask"), (std::vector<float>{0, 0, 1, 0, 1}));
  const Sample both = make_gpt_sample({5, 7, 9, 7, 6}, 9, {.pad = 7, .eod_mask_loss = true});
  EXPECT_EQ(both.weights("loss_mask"), (std::vector<float>{0, 1, 0, 1}));
}

// --dataloader-inter-document-masking: the index's borders, not the EOD tokens'. The arrays are
// those of Megatron's GPTDataset: lengths of the parts, less the token that is a label alone.
TEST(GptSample, DocumentsByTheIndex) {
  const auto made = [](Tokens starts) {
    return make_gpt_sample({.tokens = {5, 9, 6, 7, 9, 8, 4}, .sequence_starts = std::move(starts)},
                           9, {.eod_mask_loss = true, .inter_document = true});
  };
  const Sample two = made({3});
  EXPECT_EQ(two.sequence("text").runs, (std::vector<std::int32_t>{3, 3}));
  EXPECT_EQ(two.sequence("text").positions, (Tokens{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(two.weights("loss_mask"), (std::vector<float>{1, 0, 1, 1, 0, 1}));
  EXPECT_EQ(made({}).sequence("text").runs, std::vector<std::int32_t>{6});
  // A document that begins the sample, and one whose first token is the last label.
  EXPECT_EQ(made({0, 1, 6}).sequence("text").runs, (std::vector<std::int32_t>{1, 5}));
  EXPECT_EQ(made({0, 1, 6}).sequence("text").positions, (Tokens{0, 0, 1, 2, 3, 4}));
  EXPECT_EQ(made({5}).sequence("text").runs, (std::vector<std::int32_t>{5, 1}));
}

// Documents of all lengths, with and without EOD tokens, empty ones among them: runs end exactly
// where sequences of the corpus do.
TEST_F(GptDatasetFiles, InterDocumentRunsAreTheSequences) {
  auto with = options(7);
  with.masks.inter_document = true;
  testing::write_corpus(with.data_path, testing::distinct_documents({5, 20, 1, 33, 8, 0, 2, 14}));
  const GptDataset dataset = make(with, 40);
  for (std::int64_t i = 0; i < dataset.num_samples(); ++i) {
    const GptText text = dataset.text(i);
    std::vector<std::int32_t> runs;
    Tokens positions;
    for (std::int64_t t = 0; t < 7; ++t) {
      const bool starts = std::ranges::find(text.sequence_starts, t) != text.sequence_starts.end();
      if (starts || t == 0) {
        runs.push_back(0);
        positions.push_back(0);
      } else {
        positions.push_back(positions.back() + 1);
      }
      ++runs.back();
    }
    const Sample sample = dataset.sample(i);
    ASSERT_EQ(sample.sequence("text").runs, runs) << "sample " << i;
    ASSERT_EQ(sample.sequence("text").positions, positions) << "sample " << i;
  }
}

// Megatron's drop_last_partial_validation_sequence: the last tokens of a validation set are a short
// sample, filled up with what counts nowhere. Sizes that leave one token more than whole samples,
// and those that leave none.
TEST_F(GptDatasetFiles, PartialValidationSampleIsFilledUp) {
  auto with = options(8);
  with.split = "0,1,0";
  with.drop_last_partial_validation_sequence = false;
  for (const int last : {1, 2, 6, 7, 8, 9, 15, 16}) {
    with.data_path += "_" + std::to_string(last);
    testing::write_corpus(with.data_path, testing::distinct_documents({5, 0, 12, last, 0}));
    const auto corpus = std::make_shared<const IndexedDataset>(with.data_path);
    const std::int64_t tokens = 17 + last;
    for (int time = 0; time < 2; ++time) {  // built, then from the cache
      const GptDataset dataset(corpus, with, DataSplit::kValid, std::nullopt);
      ASSERT_EQ(dataset.num_samples(), (tokens - 1 + 7) / 8) << last;
      const GptIndex& index = dataset.index();
      const GptIndexSource source = {corpus.get(), 0, 5, 8, with.seed, true};
      EXPECT_EQ(check_gpt_index(source, index), std::nullopt);
      double counted = 0;
      for (std::int64_t i = 0; i < dataset.num_samples(); ++i) {
        const Sample sample = dataset.sample(i);
        const GptText text = dataset.text(i);
        const auto real = static_cast<std::int64_t>(
            std::ranges::count_if(text.tokens, [](std::int64_t token) { return token >= 0; }));
        const std::int64_t begin = index.shuffle_index[i] * 8;
        EXPECT_EQ(real, std::min<std::int64_t>(9, tokens - begin)) << i;
        for (std::size_t t = 0; t < 8; ++t) {
          const bool label = text.tokens[t + 1] >= 0;
          EXPECT_EQ(sample.weights("loss_mask")[t], label ? 1.0F : 0.0F);
          EXPECT_EQ(sample.ids("labels")[t], label ? text.tokens[t + 1] : 0);
          EXPECT_EQ(sample.ids("tokens")[t], std::max<std::int64_t>(text.tokens[t], 0));
          counted += sample.weights("loss_mask")[t];
        }
      }
      EXPECT_EQ(counted,
                static_cast<double>(tokens - 1));  // every token but the first is predicted
    }
    // Training samples are whole whatever it says.
    auto training = with;
    training.split = "1";
    EXPECT_EQ(GptDataset(corpus, training, DataSplit::kTrain, std::nullopt).num_samples(),
              (tokens - 1) / 8);
  }
}

TEST_F(GptDatasetFiles, StreamOfAllSamplesIsTheShuffledText) {
  const auto with = options(7);
  testing::write_corpus(with.data_path, testing::distinct_documents({5, 20, 1, 33, 8, 0, 2, 14}));
  const IndexedDataset corpus(with.data_path);
  for (const std::int64_t samples : {1, 11, 12, 13, 40, 100}) {
    expect_stream(make(with, samples), corpus);
  }
  expect_stream(make(with, std::nullopt), corpus);
}

TEST_F(GptDatasetFiles, OrderIsAFunctionOfSeedAlone) {
  auto with = options(7);
  testing::write_corpus(with.data_path, testing::distinct_documents({50, 20, 10, 33, 80, 14}));
  const auto order = [&](std::int64_t seed, const std::string& cache, bool mmap) {
    with.seed = seed;
    with.data_cache_path = with.data_path + cache;
    const auto corpus = std::make_shared<const IndexedDataset>(
        with.data_path, IndexedDatasetOptions{.mmap_bin_files = mmap});
    const GptDataset dataset(corpus, with, DataSplit::kTrain, 60);
    std::vector<Tokens> all;
    for (std::int64_t i = 0; i < 60; ++i) all.push_back(dataset.sample(i).ids("tokens"));
    return all;
  };
  const auto first = order(1, "a", true);
  EXPECT_EQ(order(1, "a", true), first);   // from the cache
  EXPECT_EQ(order(1, "b", false), first);  // built again, read with pread
  EXPECT_NE(order(2, "a", true), first);
}

TEST_F(GptDatasetFiles, TokenOutsideTheVocabularyIsNamed) {
  const auto with = options(4, 100);
  testing::write_corpus(with.data_path, {{1, 2, 3, 4, 5, 6}, {7, 100, 8, 9, 10}});
  const GptDataset dataset = make(with, std::nullopt);
  std::string message;
  for (std::int64_t i = 0; i < dataset.num_samples(); ++i) {
    try {
      (void)dataset.sample(i);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kData);
      message = error.what();
    }
  }
  EXPECT_NE(message.find("sequence 1 (document 1) holds token 100"), std::string::npos) << message;
}

TEST_F(GptDatasetFiles, OnlyPartsThatAreAskedForAreBuilt) {
  auto with = options(4);
  with.split = "8,1,1";
  testing::write_corpus(
      with.data_path, testing::distinct_documents(std::vector<int>{9, 9, 9, 9, 9, 9, 9, 9, 9, 9}));
  GptParts sets = build_gpt_parts(with, {.train = 10, .valid = 3, .test = 0});
  ASSERT_TRUE(sets.train && sets.valid);
  EXPECT_FALSE(sets.test);
  EXPECT_GE(sets.train->num_samples(), 10);
  // The parts share no token.
  for (std::int64_t i = 0; i < sets.train->num_samples(); ++i) {
    for (const std::int64_t token : sets.train->text(i).tokens) EXPECT_LT(token, 72);
  }
  for (std::int64_t i = 0; i < sets.valid->num_samples(); ++i) {
    for (const std::int64_t token : sets.valid->text(i).tokens) {
      EXPECT_TRUE(token >= 72 && token < 81);
    }
  }
  // No validation data is needed when none is asked for.
  with.split = "100";
  EXPECT_TRUE(build_gpt_parts(with, {.train = 5, .valid = 0, .test = 0}).train);
  EXPECT_THROW((void)build_gpt_parts(with, {.train = 5, .valid = 1, .test = 0}), Error);
}

TEST_F(GptDatasetFiles, ShortAndEmptyCorporaAreNamed) {
  auto with = options(8);
  testing::write_corpus(with.data_path, {{1, 2, 3}});
  EXPECT_THROW((void)make(with, std::nullopt), Error);  // one epoch gives no sample
  EXPECT_GE(make(with, 2).num_samples(), 2);            // epochs repeat until there are enough
  auto empty = options(8);
  empty.data_path += "empty";
  IndexedDatasetWriter(empty.data_path, TokenDtype::kUint16).finish();
  try {
    (void)build_gpt_parts(empty, {.train = 1, .valid = 0, .test = 0});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kData);
    EXPECT_NE(std::string(error.what()).find("holds no documents"), std::string::npos);
  }
}

TEST_F(GptDatasetFiles, RandomCorporaKeepTheStream) {
  std::mt19937 random(20240601);
  for (int round = 0; round < 30; ++round) {
    auto with = options(1 + static_cast<std::int64_t>(random() % 24));
    with.data_path += std::to_string(round);
    with.seed = static_cast<std::int64_t>(random());
    std::vector<int> lengths(1 + random() % 12);
    for (int& length : lengths) length = static_cast<int>(random() % 40);
    lengths[0] += 26;  // at least one sample
    testing::write_corpus(with.data_path, testing::distinct_documents(lengths),
                          round % 2 == 0 ? TokenDtype::kUint16 : TokenDtype::kInt32);
    const IndexedDataset corpus(with.data_path);
    expect_stream(make(with, 1 + static_cast<std::int64_t>(random() % 200)), corpus);
  }
}

TEST(Cases, MegatronLM_1145) {
  // 100 documents of 37 tokens, sequence 16: a sample is no document; (100 * 37 - 1) / 16 samples
  // an epoch.
  const TempFolder folder;
  GptDatasetOptions with;
  with.data_path = (folder.path() / "c").string();
  with.split = "100";
  with.sequence_length = 16;
  with.vocab_size = 60000;
  testing::write_corpus(with.data_path, testing::distinct_documents(std::vector<int>(100, 37)));
  const auto corpus = std::make_shared<const IndexedDataset>(with.data_path);
  const GptDataset dataset(corpus, with, DataSplit::kTrain, std::nullopt);
  EXPECT_EQ(dataset.num_samples(), 231);
  EXPECT_EQ(dataset.index().plan.num_epochs, 1);
  expect_stream(dataset, *corpus);
}

TEST(Cases, MegatronLM_1711) {
  GptDatasetFolder files;
  // Masks belong to the sample: a batch that changes its own leaves later reads alone.
  auto with = files.options(6, 300);
  with.masks.eod_mask_loss = true;
  testing::write_corpus(with.data_path, {{1, 2, 299, 4, 5, 6, 7, 8, 299, 1, 2, 3, 4}});
  const GptDataset dataset = files.make(with, 4);
  Sample first = dataset.sample(0);
  const Sample before = first;
  for (float& weight : std::get<std::vector<float>>(first.fields.at("loss_mask"))) weight = 0;
  for (std::int64_t& position : first.sequences.at("text").positions) position = -1;
  EXPECT_EQ(dataset.sample(0).weights("loss_mask"), before.weights("loss_mask"));
  EXPECT_EQ(dataset.sample(0).sequence("text").positions, before.sequence("text").positions);
}

TEST(Cases, MegatronLM_954) {
  GptDatasetFolder files;
  // Two documents in a sequence, attention and positions reset: the runs in the batch are the
  // documents.
  auto with = files.options(6, 300);
  with.masks = {.reset_position_ids = true, .reset_attention_mask = true};
  testing::write_corpus(with.data_path, {{1, 2, 299, 4, 5, 6, 7}});
  const GptDataset dataset = files.make(with, std::nullopt);
  const SampleBatch batch = make_batch(dataset, {0, 0});
  const SampleBatch::Sequence& text = batch.sequences.at("text");
  EXPECT_EQ(text.boundaries, (Tokens{0, 3, 6, 9, 12}));
  EXPECT_EQ(text.samples, (Tokens{0, 6, 12}));
  EXPECT_EQ(text.positions, (Tokens{0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2}));
}

TEST(Cases, Torchtitan_3130) {
  GptDatasetFolder files;
  // Documents without end tokens: the boundaries come from the index, whatever the token values.
  const auto with = files.options(8);
  testing::write_corpus(with.data_path, {{1, 1, 1}, {1, 1, 1, 1}, {1, 1}});
  const GptDataset dataset = files.make(with, std::nullopt);
  const GptText text = dataset.text(0);
  ASSERT_EQ(text.sequence_starts.size(), 3U);
  Tokens lengths;
  for (std::int64_t i = 0; i < 3; ++i) {
    const std::int64_t end =
        i < 2 ? text.sequence_starts[static_cast<std::size_t>(i + 1)] : std::int64_t{9};
    lengths.push_back(end - text.sequence_starts[static_cast<std::size_t>(i)]);
    EXPECT_EQ(lengths.back(),
              std::vector<std::int64_t>(
                  {3, 4, 2})[static_cast<std::size_t>(dataset.index().document_index[i])]);
  }
}

TEST(Cases, MegatronDeepSpeed_326) {
  GptDatasetFolder files;
  // Begin and end of text are one id: a document that starts with it and ends with it has one reset
  // after each, as Megatron's rule says, while the true boundary stays known from the index.
  auto with = files.options(7, 300);
  with.masks.reset_attention_mask = true;
  testing::write_corpus(with.data_path, {{299, 1, 2, 299, 299, 3, 4, 299}});
  const GptDataset dataset = files.make(with, std::nullopt);
  EXPECT_EQ(dataset.sample(0).sequence("text").runs, (std::vector<std::int32_t>{1, 3, 1, 2}));
  EXPECT_EQ(dataset.text(0).sequence_starts, Tokens{0});
}

// What a resumed run is compared by: everything that changes a sample or the order, and no path.
TEST(GptDataset, IdentityIsOfSamplesAndOrder) {
  GptDatasetFolder files, others;
  const auto documents = testing::distinct_documents({50, 20, 10, 33, 80, 14});
  const auto base = files.options(7);
  testing::write_corpus(base.data_path, documents);
  const std::string identity = files.make(base, 60).identity();
  EXPECT_EQ(files.make(base, 60).identity(), identity);
  auto moved = base;
  moved.data_path = others.options(7).data_path;
  testing::write_corpus(moved.data_path, documents);
  EXPECT_EQ(others.make(moved, 60).identity(), identity);
  EXPECT_EQ(identity.find(base.data_path), std::string::npos);
  const std::vector<std::function<void(GptDatasetOptions&)>> changes = {
      [](GptDatasetOptions& o) { o.seed += 1; },
      [](GptDatasetOptions& o) { o.sequence_length = 8; },
      [](GptDatasetOptions& o) { o.eod -= 1; },
      [](GptDatasetOptions& o) { o.masks.reset_position_ids = true; },
      [](GptDatasetOptions& o) { o.masks.reset_attention_mask = true; },
      [](GptDatasetOptions& o) { o.masks.eod_mask_loss = true; },
      [](GptDatasetOptions& o) { o.masks.inter_document = true; }};
  for (std::size_t i = 0; i < changes.size(); ++i) {
    auto changed = base;
    changes[i](changed);
    EXPECT_NE(files.make(changed, 60).identity(), identity) << "change " << i;
  }
  EXPECT_NE(files.make(base, 200).identity(), identity) << "another number of epochs";
}

TEST_F(GptDatasetFiles, LoaderOverAllRanksReadsEverySampleOnce) {
  const auto with = options(5);
  testing::write_corpus(with.data_path, testing::distinct_documents({50, 20, 10, 33, 80, 14}));
  const GptDataset dataset = make(with, 120);
  Tokens all;
  for (std::int64_t rank = 0; rank < 3; ++rank) {
    DataLoader loader(dataset,
                      {.plan = std::make_shared<GlobalBatchPlan>(12, 2, 3), .dp_rank = rank});
    while (const auto step = loader.next()) {
      for (const auto& batch : *step) {
        const auto& tokens = batch->ids("tokens");
        for (std::size_t j = 0; j < batch->sample_ids.size(); ++j) {
          const auto begin = tokens.begin() + static_cast<std::ptrdiff_t>(5 * j);
          EXPECT_EQ(Tokens(begin, begin + 5), dataset.sample(batch->sample_ids[j]).ids("tokens"));
          all.push_back(batch->sample_ids[j]);
        }
      }
    }
  }
  std::sort(all.begin(), all.end());
  Tokens expected(static_cast<std::size_t>(dataset.num_samples() / 12 * 12));
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(all, expected);
}

}  // namespace
}  // namespace pentatron::datasets
