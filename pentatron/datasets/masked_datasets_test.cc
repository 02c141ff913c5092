// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/base/temp_folder.h"
#include "pentatron/base/test_support.h"
#include "pentatron/datasets/bert_dataset.h"
#include "pentatron/datasets/sample_batch.h"
#include "pentatron/datasets/t5_dataset.h"
#include "pentatron/datasets/test_corpus.h"
#include "pentatron/tokenizers/bert_tokenizer.h"
#include "pentatron/tokenizers/null_tokenizer.h"

namespace pentatron::datasets {
namespace {

using Values = std::vector<std::int64_t>;

// The numbers below are those of Megatron-LM's own classes and helpers.cpp (d98e8a64), run on this
// corpus: 40 documents of 0 to 5 sentences, one of them with a sentence of 600 tokens, of a
// vocabulary of 100 in which tokens 60 to 89 go on with a word.
std::shared_ptr<const IndexedDataset> reference_corpus(const std::string& prefix) {
  IndexedDatasetWriter writer(prefix, TokenDtype::kUint16);
  for (int d = 0; d < 40; ++d) {
    for (int s = 0; s < d * 7 % 6; ++s) {
      const int length = d == 13 && s == 1 ? 600 : 3 + (d * 5 + s * 11) % 17;
      std::vector<std::int32_t> tokens;
      for (int t = 0; t < length; ++t) tokens.push_back(5 + (d * 31 + s * 17 + t * 7) % 85);
      writer.add_sequence(tokens);
    }
    writer.end_document();
  }
  writer.finish();
  return std::make_shared<const IndexedDataset>(prefix);
}

MaskVocabulary reference_vocabulary() {
  MaskVocabulary vocabulary{
      .size = 100, .cls = 1, .sep = 2, .mask = 3, .pad = 0, .bos = 1, .eos = 2};
  for (int id = 0; id < 100; ++id) vocabulary.continues.push_back(id >= 60 && id < 90);
  for (int id = 90; id < 100; ++id) vocabulary.sentinels.push_back(id);
  return vocabulary;
}

std::uint32_t crc(const Values& values) {
  return static_cast<std::uint32_t>(
      ::crc32(0, reinterpret_cast<const Bytef*>(values.data()),
              static_cast<uInt>(values.size() * sizeof(std::int64_t))));
}

std::uint32_t index_crc(const SentenceSource& source) {
  Values values;
  for (std::int64_t i = 0; i < source.num_samples(); ++i) {
    const SentenceSpan span = source.span(i);
    values.insert(values.end(), {span.begin, span.begin + span.count, span.target});
  }
  return crc(values);
}

// Labels as Megatron has them: -1 where nothing is predicted.
Values megatron_labels(const Sample& sample) {
  Values labels = sample.ids("labels");
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (sample.weights("loss_mask")[i] == 0) labels[i] = -1;
  }
  return labels;
}

Values field(const Sample& sample, const std::string& name) {
  if (name == "labels") return megatron_labels(sample);
  if (name != "loss_mask") return sample.ids(name);
  const std::vector<float>& weights = sample.weights(name);
  return {weights.begin(), weights.end()};
}

using Sums = std::vector<std::pair<std::string, std::uint32_t>>;

// The field over all samples, one after the other.
void expect_sums(const SampleSource& source, const Sums& expected) {
  for (const auto& [name, sum] : expected) {
    Values all;
    for (std::int64_t i = 0; i < source.num_samples(); ++i) {
      const Values one = field(source.sample(i), name);
      all.insert(all.end(), one.begin(), one.end());
    }
    EXPECT_EQ(crc(all), sum) << name;
  }
}

class MaskedDatasets : public ::testing::Test {
 protected:
  BertDataset bert(const BertDatasetOptions& options, std::optional<std::int64_t> count) {
    return {corpus_, vocabulary_, options, DataSplit::kTrain, count};
  }
  T5Dataset t5(const std::string& split, DataSplit part, std::int64_t count) {
    return {corpus_,
            vocabulary_,
            {.split = split, .encoder_sequence_length = 48, .decoder_sequence_length = 24},
            part,
            count};
  }
  TempFolder folder_;
  std::shared_ptr<const IndexedDataset> corpus_ =
      reference_corpus((folder_.path() / "sentences").string());
  std::shared_ptr<const MaskVocabulary> vocabulary_ =
      std::make_shared<const MaskVocabulary>(reference_vocabulary());
};

TEST_F(MaskedDatasets, BertEqualsMegatron) {
  const BertDataset source = bert({.split = "1", .sequence_length = 32}, 100);
  ASSERT_EQ(source.num_samples(), 129);  // whole epochs
  EXPECT_EQ(index_crc(source), 315051523U);
  EXPECT_EQ(source.span(0), (SentenceSpan{.begin = 6, .count = 4, .target = 29}));
  const Sample first = source.sample(0);
  EXPECT_EQ(first.ids("tokens"),
            (Values{1,  61, 68, 75, 82, 89, 3, 18, 25, 3, 39, 46, 53, 60, 67, 74,
                    81, 88, 78, 85, 7,  14, 3, 28, 35, 2, 10, 17, 24, 31, 38, 2}));
  Values types(32, 0);
  std::fill(types.begin() + 26, types.end(), 1);
  EXPECT_EQ(first.ids("types"), types);
  Values labels(32, 0);
  labels[6] = 11;
  labels[9] = 32;
  labels[22] = 21;
  labels[24] = 35;  // one that stays as it is
  EXPECT_EQ(first.ids("labels"), labels);
  EXPECT_EQ(first.ids("truncated"), Values{1});
  EXPECT_EQ(first.sequence("text").runs, std::vector<std::int32_t>{32});
  expect_sums(source, {{"tokens", 1998121678U},
                       {"types", 127041938U},
                       {"labels", 36538089U},
                       {"is_random", 4251912903U},
                       {"padding_mask", 283008419U},
                       {"loss_mask", 2614734861U},
                       {"truncated", 2342179677U}});
}

TEST_F(MaskedDatasets, OneTextAndLongNgramsEqualMegatron) {
  const BertDataset source =
      bert({.split = "1",
            .sequence_length = 24,
            .short_sequence_probability = 0,
            .sentence_order = false,
            .mask = {.probability = 0.3, .max_ngram = 10, .longer_ngrams = true}},
           std::nullopt);
  ASSERT_EQ(source.num_samples(), 43);  // one epoch
  EXPECT_EQ(index_crc(source), 2208701355U);
  const Sample first = source.sample(0);
  EXPECT_EQ(first.ids("tokens"), (Values{1,  47, 54, 61, 68, 75, 82, 89, 3, 18, 25, 32,
                                         39, 46, 3,  3,  67, 3,  3,  2,  0, 0,  0,  0}));
  EXPECT_EQ(first.sequence("text").runs, (std::vector<std::int32_t>{20, 4}));
  expect_sums(source, {{"tokens", 3030378688U},
                       {"types", 1171619515U},
                       {"labels", 710261250U},
                       {"padding_mask", 571544467U},
                       {"loss_mask", 1689624567U},
                       {"truncated", 4046006134U}});
}

TEST_F(MaskedDatasets, GeometricNgramsAndShortSequencesEqualMegatron) {
  const BertDataset source = bert({.split = "1",
                                   .sequence_length = 64,
                                   .short_sequence_probability = 0.5,
                                   .mask = {.max_ngram = 10, .geometric = true}},
                                  64);
  ASSERT_EQ(source.num_samples(), 87);
  EXPECT_EQ(index_crc(source), 2246468057U);
  // A target of two tokens: 15 % of it are less than one, and nothing is masked.
  EXPECT_EQ(source.sample(0).weights("loss_mask"), std::vector<float>(64, 0.0F));
  expect_sums(source, {{"tokens", 2003135694U},
                       {"types", 470115736U},
                       {"labels", 410858098U},
                       {"is_random", 3701918447U},
                       {"padding_mask", 593790256U},
                       {"loss_mask", 2316744207U},
                       {"truncated", 3251932106U}});
}

TEST_F(MaskedDatasets, T5EqualsMegatron) {
  // Documents 2 to 38: the middle part of this split.
  const T5Dataset source = t5("2,37,1", DataSplit::kValid, 100);
  ASSERT_EQ(source.num_samples(), 127);
  EXPECT_EQ(index_crc(source), 807599939U);
  const Sample first = source.sample(0);
  Values encoder = {90, 54, 61, 68, 75, 82, 89, 91, 18, 25, 32, 39, 92, 53, 60, 67, 74, 81};
  encoder.resize(48, 0);
  EXPECT_EQ(first.ids("encoder_tokens"), encoder);
  Values decoder = {1, 90, 47, 91, 11, 92, 46};
  decoder.resize(24, 0);
  EXPECT_EQ(first.ids("decoder_tokens"), decoder);
  Values labels = {90, 47, 91, 11, 92, 46, 2};
  labels.resize(24, 0);
  EXPECT_EQ(first.ids("labels"), labels);
  EXPECT_EQ(first.sequence("encoder").runs, (std::vector<std::int32_t>{18, 30}));
  EXPECT_EQ(first.sequence("decoder").runs, (std::vector<std::int32_t>{7, 17}));
  expect_sums(source, {{"encoder_tokens", 2078768211U},
                       {"decoder_tokens", 2344818208U},
                       {"labels", 1103964262U},
                       {"loss_mask", 3391080070U},
                       {"truncated", 2448103087U},
                       {"encoder_mask", 1230422699U},
                       {"decoder_mask", 3391080070U}});
}

// Where the decoder's words are put back at their sentinels, the text of the corpus stands again.
TEST_F(MaskedDatasets, T5LosesNothing) {
  const T5Dataset source = t5("1", DataSplit::kTrain, 500);
  for (std::int64_t i = 0; i < source.num_samples(); ++i) {
    const Sample sample = source.sample(i);
    const Values& decoder = sample.ids("decoder_tokens");
    Values text;
    for (const std::int64_t token : sample.ids("encoder_tokens")) {
      if (token == 0) break;
      if (token < 90) {
        text.push_back(token);
        continue;
      }
      auto word = std::ranges::find(decoder, token);
      ASSERT_NE(word, decoder.end());
      for (++word; word != decoder.end() && *word != 0 && *word < 90; ++word) text.push_back(*word);
    }
    const SentenceSpan span = source.span(i);
    const std::int64_t length = std::min<std::int64_t>(count_tokens(*corpus_, span), span.target);
    EXPECT_EQ(text, read_sentences(*corpus_, span, 0, length, 100)) << i;
  }
}

TEST(MaskedStatistics, SharesAreThoseOfThePaper) {
  const TempFolder folder;
  const std::string prefix = (folder.path() / "many").string();
  constexpr int kVocabulary = 1000;
  {
    IndexedDatasetWriter writer(prefix, TokenDtype::kUint16);
    for (int d = 0; d < 1000; ++d) {
      for (int s = 0; s < 12; ++s) {
        std::vector<std::int32_t> tokens(20);
        for (int t = 0; t < 20; ++t) {
          tokens[static_cast<std::size_t>(t)] = 5 + (d * 131 + s * 37 + t * 61) % 990;
        }
        writer.add_sequence(tokens);
      }
      writer.end_document();
    }
    writer.finish();
  }
  const auto vocabulary = std::make_shared<const MaskVocabulary>(
      MaskVocabulary{.size = kVocabulary,
                     .cls = 1,
                     .sep = 2,
                     .mask = 3,
                     .pad = 0,
                     .continues = std::vector<bool>(kVocabulary, false)});
  const BertDataset source(std::make_shared<const IndexedDataset>(prefix), vocabulary,
                           {.split = "1", .sequence_length = 131}, DataSplit::kTrain, 3000);
  double tokens = 0, masked = 0, as_mask = 0, stay = 0, swapped = 0, shorter = 0;
  for (std::int64_t i = 0; i < source.num_samples(); ++i) {
    const Sample sample = source.sample(i);
    shorter += source.span(i).target < 128 ? 1 : 0;
    swapped += static_cast<double>(sample.ids("is_random")[0]);
    tokens += sample.sequence("text").runs[0] - 3;  // [CLS] and [SEP] are never masked
    for (std::size_t k = 0; k < 131; ++k) {
      if (sample.weights("loss_mask")[k] == 0) continue;
      ++masked;
      as_mask += sample.ids("tokens")[k] == 3 ? 1 : 0;
      stay += sample.ids("tokens")[k] == sample.ids("labels")[k] ? 1 : 0;
    }
  }
  const auto samples = static_cast<double>(source.num_samples());
  ASSERT_GT(masked, 30000);
  // Bounds of five standard deviations and more; a random token is the old one or [MASK] in two of
  // a thousand. Of 128 tokens 19 are masked, not 19.2.
  EXPECT_NEAR(masked / tokens, 19.0 / 128, 0.001);
  EXPECT_NEAR(as_mask / masked, 0.8001, 0.012);
  EXPECT_NEAR(stay / masked, 0.1001, 0.009);
  EXPECT_NEAR(swapped / samples, 0.5, 0.05);
  EXPECT_NEAR(shorter / samples, 0.1, 0.03);
}

TEST_F(MaskedDatasets, WordsAreMaskedWhole) {
  const BertDataset source =
      bert({.split = "1", .sequence_length = 64, .mask = {.max_ngram = 1}}, 200);
  for (std::int64_t i = 0; i < source.num_samples(); ++i) {
    const Sample sample = source.sample(i);
    const std::vector<float>& masked = sample.weights("loss_mask");
    for (std::size_t k = 1; k < masked.size(); ++k) {
      const std::int64_t token = masked[k] != 0 ? sample.ids("labels")[k] : sample.ids("tokens")[k];
      // What goes on with a word shares its fate; the first token of a text may go on with a word
      // that lies before a [SEP].
      const std::int64_t before =
          masked[k - 1] != 0 ? sample.ids("labels")[k - 1] : sample.ids("tokens")[k - 1];
      if (token >= 60 && token < 90 && before > 3) {
        EXPECT_EQ(masked[k], masked[k - 1]) << "sample " << i << " row " << k;
      }
    }
  }
}

TEST_F(MaskedDatasets, StandInBatchesAndTellTheirIdentity) {
  const BertDatasetOptions options{.split = "1", .sequence_length = 32};
  const BertDataset source = bert(options, 100);
  const SampleBatch batch = make_batch(source, {3, 0, 7});
  EXPECT_EQ(batch.ids("types").size(), 96U);
  EXPECT_EQ(batch.ids("is_random").size(), 3U);
  EXPECT_EQ(batch.sequences.at("text").samples, (Values{0, 32, 64, 96}));
  EXPECT_EQ(source.identity(), bert(options, 100).identity());
  BertDatasetOptions other = options;
  other.seed = 1235;
  EXPECT_NE(source.identity(), bert(other, 100).identity());
  other = options;
  other.mask.probability = 0.2;
  EXPECT_NE(source.identity(), bert(other, 100).identity());
  EXPECT_NE(source.identity(), bert(options, 400).identity());

  const T5Dataset t5(corpus_, vocabulary_,
                     {.split = "1", .encoder_sequence_length = 48, .decoder_sequence_length = 24},
                     DataSplit::kTrain, 100);
  const SampleBatch both = make_batch(t5, {1, 2});
  EXPECT_EQ(both.sequences.at("encoder").samples, (Values{0, 48, 96}));
  EXPECT_EQ(both.sequences.at("decoder").samples, (Values{0, 24, 48}));
}

TEST_F(MaskedDatasets, ErrorsNameTheRemedy) {
  const auto t5 = [&](std::shared_ptr<const MaskVocabulary> vocabulary, std::int64_t rows) {
    const T5Dataset source(corpus_, std::move(vocabulary),
                           {.split = "1",
                            .encoder_sequence_length = 48,
                            .decoder_sequence_length = rows,
                            .mask = {.probability = 0.5, .max_ngram = 1}},
                           DataSplit::kTrain, 100);
    for (std::int64_t i = 0; i < source.num_samples(); ++i) (void)source.sample(i);
  };
  MaskVocabulary few = reference_vocabulary();
  few.sentinels.resize(1);
  expect_error(ErrorKind::kConfig, "--vocab-extra-ids",
               [&] { t5(std::make_shared<const MaskVocabulary>(few), 48); });
  few.sentinels.clear();
  expect_error(ErrorKind::kConfig, "<extra_id_0>",
               [&] { t5(std::make_shared<const MaskVocabulary>(few), 48); });
  MaskVocabulary many = reference_vocabulary();
  for (std::int64_t i = 0; i < 40; ++i) many.sentinels.push_back(99);
  expect_error(ErrorKind::kConfig, "--decoder-seq-length 12",
               [&] { t5(std::make_shared<const MaskVocabulary>(many), 12); });
  expect_error(ErrorKind::kConfig, "--seq-length",
               [&] { bert({.split = "1", .sequence_length = 4}, 10); });
  expect_error(ErrorKind::kConfig, "--mask-prob", [&] {
    bert({.split = "1", .sequence_length = 32, .mask = {.probability = 1}}, 10);
  });
  expect_error(ErrorKind::kConfig, "--short-seq-prob", [&] {
    bert({.split = "1", .sequence_length = 32, .short_sequence_probability = 1.5}, 10);
  });
  // Documents of one sequence each: no two texts, so no epoch ever gives a sample.
  const std::string prefix = (folder_.path() / "plain").string();
  testing::write_corpus(prefix, testing::counting_documents(4, 20));
  const auto plain = std::make_shared<const IndexedDataset>(prefix);
  expect_error(ErrorKind::kData, "--split-sentences", [&] {
    (void)BertDataset(plain, vocabulary_, {.split = "1", .sequence_length = 32}, DataSplit::kTrain,
                      10);
  });
  MaskVocabulary small = reference_vocabulary();
  small.size = 30;
  expect_error(ErrorKind::kData, "the vocabulary has 30", [&] {
    const BertDataset source(corpus_, std::make_shared<const MaskVocabulary>(small),
                             {.split = "1", .sequence_length = 32}, DataSplit::kTrain, 10);
    for (std::int64_t i = 0; i < source.num_samples(); ++i) (void)source.sample(i);
  });
}

TEST(MaskVocabulary, IsReadFromATokenizer) {
  const TempFolder folder;
  testing::write_text(folder.path() / "vocab.txt",
                      "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nfish\n##es\n");
  const auto cased = tokenizers::load_bert_tokenizer(folder.path() / "vocab.txt", false);
  const MaskVocabulary of_cased = mask_vocabulary(*cased);
  EXPECT_EQ(of_cased.cls, 2);
  EXPECT_EQ(of_cased.sep, 3);
  EXPECT_EQ(of_cased.mask, 4);
  EXPECT_EQ(of_cased.pad, 0);
  EXPECT_EQ(of_cased.size, 107);  // Megatron gives the cased vocabulary 100 sentinels
  EXPECT_EQ(of_cased.sentinels.size(), 100U);
  EXPECT_EQ(of_cased.sentinels.front(), 7);
  EXPECT_TRUE(of_cased.continues[6]);
  EXPECT_EQ(std::ranges::count(of_cased.continues, true), 1);
  const auto lower = tokenizers::load_bert_tokenizer(folder.path() / "vocab.txt", true);
  EXPECT_TRUE(mask_vocabulary(*lower).sentinels.empty());
  const MaskVocabulary extended = mask_vocabulary(*lower, 3);
  EXPECT_EQ(extended.sentinels, (Values{7, 8, 9}));
  EXPECT_EQ(extended.size, 10);
  EXPECT_THROW((void)mask_vocabulary(*cased, 3), Error);
  EXPECT_THROW((void)mask_vocabulary(*lower, -1), Error);
}

TEST(NumpyRandomState, DrawsOfMaskedSamplesEqualNumPy) {
  NumpyRandomState state(7);
  const auto many = [](int count, auto draw) {
    Values values;
    for (int i = 0; i < count; ++i) values.push_back(static_cast<std::int64_t>(draw()));
    return values;
  };
  EXPECT_EQ(many(12, [&] { return state.geometric(0.2); }),
            (Values{1, 7, 3, 6, 18, 4, 4, 1, 2, 4, 6, 8}));
  EXPECT_EQ(many(8, [&] { return state.integer(1, 9); }), (Values{5, 1, 4, 8, 3, 7, 4, 5}));
  EXPECT_NEAR(state.uniform(), 0.213385, 1e-6);
  EXPECT_NEAR(state.uniform(), 0.452124, 1e-6);
  EXPECT_NEAR(state.uniform(), 0.931206, 1e-6);
  const std::vector<double> cdf = {0.4, 0.7, 0.9, 1.0};
  EXPECT_EQ(many(8, [&] { return state.choice(cdf); }), (Values{0, 1, 3, 0, 1, 3, 0, 1}));
  NumpyRandomState sums(9);
  std::int64_t sum = 0;
  for (int i = 0; i < 100000; ++i) sum += sums.geometric(0.2);
  EXPECT_EQ(sum, 499599);
  sum = 0;
  for (int i = 0; i < 100000; ++i) sum += sums.geometric(0.05);
  EXPECT_EQ(sum, 1995392);
}

}  // namespace
}  // namespace pentatron::datasets
