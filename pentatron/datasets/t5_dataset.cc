// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/t5_dataset.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string_view>
#include <utility>

#include "pentatron/base/error.h"

namespace pentatron::datasets {
namespace {

constexpr std::int64_t kSpecialTokens = 2;  // Megatron keeps room for BOS and EOS in the encoder

struct T5Texts {
  std::vector<std::int64_t> encoder;
  std::vector<std::int64_t> decoder;
  std::vector<std::int64_t> labels;
};

T5Texts cut_out(const std::vector<std::int64_t>& tokens, const std::vector<MaskedSpan>& spans,
                const MaskVocabulary& vocabulary) {
  PENTATRON_CHECK(spans.size() <= vocabulary.sentinels.size(), kConfig,
                  "a sample has {} masked runs and the tokenizer {} sentinels: raise "
                  "--vocab-extra-ids",
                  spans.size(), vocabulary.sentinels.size());
  T5Texts texts{.encoder = {}, .decoder = {vocabulary.bos}, .labels = {}};
  auto from = tokens.begin();
  for (std::size_t s = 0; s < spans.size(); ++s) {
    const MaskedSpan& span = spans[s];
    texts.encoder.insert(texts.encoder.end(), from, tokens.begin() + span.places.front());
    texts.encoder.push_back(vocabulary.sentinels[s]);
    for (auto* const side : {&texts.decoder, &texts.labels}) {
      side->push_back(vocabulary.sentinels[s]);
      side->insert(side->end(), span.labels.begin(), span.labels.end());
    }
    from = tokens.begin() + span.places.back() + 1;
  }
  texts.encoder.insert(texts.encoder.end(), from, tokens.end());
  texts.labels.push_back(vocabulary.eos);
  return texts;
}

// Pads the tokens of one side, and adds its sequence and mask.
void add_side(Sample& sample, const std::string& name, std::vector<std::int64_t> tokens,
              std::int64_t rows, std::int64_t pad) {
  const auto used = static_cast<std::int32_t>(tokens.size());
  tokens.resize(static_cast<std::size_t>(rows), pad);
  std::vector<std::int64_t> mask(tokens.size(), 1);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] != pad) continue;
    tokens[i] = 0;
    mask[i] = 0;
  }
  SampleSequence sequence{.positions = std::vector<std::int64_t>(tokens.size()), .runs = {}};
  std::iota(sequence.positions.begin(), sequence.positions.end(), 0);
  if (used > 0) sequence.runs.push_back(used);
  if (used < rows) sequence.runs.push_back(static_cast<std::int32_t>(rows - used));
  sample.sequences.emplace(name, std::move(sequence));
  sample.fields.emplace(name + "_tokens", std::move(tokens));
  sample.fields.emplace(name + "_mask", std::move(mask));
}

}  // namespace

SentenceSource::Frame T5Dataset::frame(const T5DatasetOptions& options, DataSplit split,
                                       std::optional<std::int64_t> num_samples) {
  return {.class_name = "T5MaskedWordPieceDataset",
          .split = options.split,
          .part = split,
          .num_samples = num_samples,
          .max_tokens = options.encoder_sequence_length - kSpecialTokens,
          .short_sequence_probability = options.short_sequence_probability,
          .min_sentences = 1,
          .seed = options.seed,
          .cache = options.cache};
}

T5Dataset::T5Dataset(std::shared_ptr<const IndexedDataset> corpus,
                     std::shared_ptr<const MaskVocabulary> words, const T5DatasetOptions& options,
                     DataSplit split, std::optional<std::int64_t> num_samples)
    : SentenceSource(std::move(corpus), std::move(words), frame(options, split, num_samples)),
      options_(options) {
  check_mask_options(options_.mask);
  PENTATRON_CHECK(vocabulary().bos >= 0 && vocabulary().eos >= 0, kConfig,
                  "samples of T5 need a tokenizer with tokens for begin and end of sequence; found "
                  "ids {} and {}",
                  vocabulary().bos, vocabulary().eos);
  PENTATRON_CHECK(!vocabulary().sentinels.empty(), kConfig,
                  "samples of T5 need sentinels: a tokenizer with tokens <extra_id_0>, "
                  "<extra_id_1>, ..., or --vocab-extra-ids 100");
  PENTATRON_CHECK(options_.decoder_sequence_length >= 2 &&
                      options_.decoder_sequence_length <= std::numeric_limits<std::int32_t>::max(),
                  kConfig, "--decoder-seq-length {}: expected 2 or more",
                  options_.decoder_sequence_length);
}

Sample T5Dataset::sample(std::int64_t i) const {
  const SentenceSpan span = this->span(i);
  NumpyRandomState random = random_of(i);
  const std::int64_t all = count_tokens(corpus(), span);
  const std::vector<std::int64_t> tokens = read_sentences(
      corpus(), span, 0, std::min<std::int64_t>(all, span.target), vocabulary().size);
  // What is masked is cut out, so nothing is drawn for it.
  const MaskedTokens masked = mask_tokens(
      tokens, span.target, options_.mask, vocabulary(),
      [](NumpyRandomState&) { return std::optional<std::int64_t>(); }, random);
  T5Texts texts = cut_out(tokens, masked.spans, vocabulary());
  const auto used = static_cast<std::int64_t>(texts.decoder.size());
  PENTATRON_CHECK(used <= options_.decoder_sequence_length, kConfig,
                  "a sample needs {} tokens of the decoder: raise --decoder-seq-length {}", used,
                  options_.decoder_sequence_length);
  PENTATRON_CHECK(std::ssize(texts.encoder) <= options_.encoder_sequence_length, kInternal,
                  "{} tokens of the encoder of {}", texts.encoder.size(),
                  options_.encoder_sequence_length);
  const auto rows = static_cast<std::size_t>(options_.decoder_sequence_length);
  std::vector<float> loss_mask(rows, 0.0F);
  std::fill_n(loss_mask.begin(), used, 1.0F);
  texts.labels.resize(rows, 0);
  Sample sample;
  add_side(sample, "encoder", std::move(texts.encoder), options_.encoder_sequence_length,
           vocabulary().pad);
  add_side(sample, "decoder", std::move(texts.decoder), options_.decoder_sequence_length,
           vocabulary().pad);
  std::ranges::replace(texts.labels, vocabulary().pad, 0);
  sample.fields.emplace("labels", std::move(texts.labels));
  sample.fields.emplace("loss_mask", std::move(loss_mask));
  sample.fields.emplace("truncated", std::vector<std::int64_t>{all > span.target ? 1 : 0});
  return sample;
}

std::string T5Dataset::identity() const {
  const nlohmann::json json = {{"corpus", corpus().identity()},
                               {"split", options_.split},
                               {"seed", options_.seed},
                               {"encoder_seq_length", options_.encoder_sequence_length},
                               {"decoder_seq_length", options_.decoder_sequence_length},
                               {"mask", mask_identity(options_.mask, vocabulary())},
                               {"index", index_hash()}};
  return json.dump();
}

}  // namespace pentatron::datasets
