// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/bert_dataset.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>
#include <utility>

#include "pentatron/base/error.h"

namespace pentatron::datasets {
namespace {

constexpr std::int64_t kSpecialTokens = 3;  // [CLS] and two [SEP]

// Tokens [begin, end) of the sentences of a sample.
struct Text {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  [[nodiscard]] std::int64_t size() const { return end - begin; }
};

// Drops a token of the longer text (of B when they are equal), at a random end, until both fit.
bool trim(Text& a, Text& b, std::int64_t target, NumpyRandomState& random) {
  if (a.size() + b.size() <= target) return false;
  while (a.size() + b.size() > target) {
    Text& text = a.size() > b.size() ? a : b;
    if (random.uniform() < 0.5) {
      ++text.begin;
    } else {
      --text.end;
    }
  }
  return true;
}

std::optional<std::int64_t> draw_token(const MaskVocabulary& vocabulary, NumpyRandomState& random) {
  if (random.uniform() < 0.8) return vocabulary.mask;
  if (random.uniform() >= 0.5) return random.integer(0, vocabulary.size);
  return std::nullopt;
}

}  // namespace

SentenceSource::Frame BertDataset::frame(const BertDatasetOptions& options, DataSplit split,
                                         std::optional<std::int64_t> num_samples) {
  return {.class_name = "BERTMaskedWordPieceDataset",
          .split = options.split,
          .part = split,
          .num_samples = num_samples,
          .max_tokens = options.sequence_length - kSpecialTokens,
          .short_sequence_probability = options.short_sequence_probability,
          .min_sentences = options.sentence_order ? 2 : 1,
          .seed = options.seed,
          .cache = options.cache};
}

BertDataset::BertDataset(std::shared_ptr<const IndexedDataset> corpus,
                         std::shared_ptr<const MaskVocabulary> words,
                         const BertDatasetOptions& options, DataSplit split,
                         std::optional<std::int64_t> num_samples)
    : SentenceSource(std::move(corpus), std::move(words), frame(options, split, num_samples)),
      options_(options) {
  check_mask_options(options_.mask);
  PENTATRON_CHECK(vocabulary().cls >= 0 && vocabulary().sep >= 0 && vocabulary().mask >= 0, kConfig,
                  "samples of BERT need a tokenizer with [CLS], [SEP] and [MASK], such as "
                  "--tokenizer-type BertWordPieceLowerCase; found ids {}, {} and {}",
                  vocabulary().cls, vocabulary().sep, vocabulary().mask);
}

Sample BertDataset::sample(std::int64_t i) const {
  const SentenceSpan span = this->span(i);
  NumpyRandomState random = random_of(i);
  const std::int64_t all = count_tokens(corpus(), span);
  Text a{.begin = 0, .end = all};
  Text b{.begin = all, .end = all};
  bool swapped = false;
  if (options_.sentence_order) {
    const std::int64_t pivot = span.count >= 3 ? random.integer(1, span.count) : 1;
    swapped = random.uniform() < 0.5;
    a.end = b.begin = count_tokens(
        corpus(),
        {.begin = span.begin, .count = static_cast<std::int32_t>(pivot), .target = span.target});
    if (swapped) std::swap(a, b);
  }
  const bool truncated = trim(a, b, span.target, random);

  std::vector<std::int64_t> tokens = {vocabulary().cls};
  const auto add = [&](const Text& text) {
    const auto read = read_sentences(corpus(), span, text.begin, text.end, vocabulary().size);
    tokens.insert(tokens.end(), read.begin(), read.end());
    tokens.push_back(vocabulary().sep);
  };
  add(a);
  std::vector<std::int64_t> types(tokens.size(), 0);
  if (b.size() > 0) add(b);
  types.resize(tokens.size(), 1);

  MaskedTokens masked = mask_tokens(
      tokens, span.target, options_.mask, vocabulary(),
      [this](NumpyRandomState& state) { return draw_token(vocabulary(), state); }, random);
  const auto rows = static_cast<std::size_t>(options_.sequence_length);
  const auto used = static_cast<std::int32_t>(masked.tokens.size());
  std::vector<std::int64_t> labels(rows, 0);
  std::vector<float> loss_mask(rows, 0.0F);
  for (const MaskedSpan& one : masked.spans) {
    for (std::size_t k = 0; k < one.places.size(); ++k) {
      const auto place = static_cast<std::size_t>(one.places[k]);
      // A label that is padding reads as 0, and counts, as in Megatron.
      labels[place] = one.labels[k] == vocabulary().pad ? 0 : one.labels[k];
      loss_mask[place] = 1.0F;
    }
  }
  std::vector<std::int64_t> padding_mask(rows, 1);
  masked.tokens.resize(rows, vocabulary().pad);
  types.resize(rows, 0);
  for (std::size_t k = 0; k < rows; ++k) {
    if (masked.tokens[k] != vocabulary().pad) continue;
    masked.tokens[k] = 0;
    padding_mask[k] = 0;
  }
  Sample sample;
  SampleSequence sequence{.positions = std::vector<std::int64_t>(rows), .runs = {used}};
  std::iota(sequence.positions.begin(), sequence.positions.end(), 0);
  const auto rest = static_cast<std::int32_t>(options_.sequence_length - used);
  if (rest > 0) sequence.runs.push_back(rest);
  sample.sequences.emplace(Sample::kText, std::move(sequence));
  sample.fields.emplace("tokens", std::move(masked.tokens));
  sample.fields.emplace("types", std::move(types));
  sample.fields.emplace("labels", std::move(labels));
  sample.fields.emplace("loss_mask", std::move(loss_mask));
  sample.fields.emplace("padding_mask", std::move(padding_mask));
  sample.fields.emplace("is_random", std::vector<std::int64_t>{swapped ? 1 : 0});
  sample.fields.emplace("truncated", std::vector<std::int64_t>{truncated ? 1 : 0});
  return sample;
}

std::string BertDataset::identity() const {
  const nlohmann::json json = {{"corpus", corpus().identity()},
                               {"split", options_.split},
                               {"seed", options_.seed},
                               {"seq_length", options_.sequence_length},
                               {"sentence_order", options_.sentence_order},
                               {"mask", mask_identity(options_.mask, vocabulary())},
                               {"index", index_hash()}};
  return json.dump();
}

}  // namespace pentatron::datasets
