// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "pentatron/datasets/indexed_dataset.h"
#include "pentatron/datasets/masked_tokens.h"
#include "pentatron/datasets/sentence_source.h"
#include "pentatron/datasets/split.h"

namespace pentatron::datasets {

struct BertDatasetOptions {
  std::string split = "969, 30, 1";  // of the documents
  std::int64_t sequence_length = 0;  // rows of a sample
  std::int64_t seed = 1234;
  double short_sequence_probability = 0.1;
  // Two texts a sample, for the head that tells whether they are in their order
  // (--bert-binary-head); false: one text.
  bool sentence_order = true;
  MaskOptions mask = {};
  SentenceCache cache = {};
};

// BERT's samples of a corpus of sentences, as Megatron's BERTMaskedWordPieceDataset makes them:
//   [CLS] text A [SEP] text B [SEP] padding
// A sample is a run of sentences of one document, cut in two at a random one; half of the time the
// two change places. Tokens are cut off at random ends until the target length fits. 15 % of the
// tokens are to be predicted: 80 % of these become [MASK], 10 % a random token, 10 % stay.
//
// Sequence "text" of S rows: the sample is one attention segment, its padding another. Fields of S
// values: "tokens", "types" (0: text A, 1: text B), "labels" (the tokens to be predicted, else 0;
// Megatron has -1), "loss_mask", "padding_mask" (1: a token that counts). Fields of one value:
// "is_random" (1: the texts changed places), "truncated" (1: tokens were cut off).
class BertDataset final : public SentenceSource {
 public:
  // `num_samples` none: one epoch. The vocabulary must have [CLS], [SEP] and [MASK], else kConfig;
  // other errors: those of build_sentence_index, and kData when the split leaves no document.
  BertDataset(std::shared_ptr<const IndexedDataset> corpus,
              std::shared_ptr<const MaskVocabulary> vocabulary, const BertDatasetOptions& options,
              DataSplit split, std::optional<std::int64_t> num_samples);

  [[nodiscard]] std::int64_t length(std::int64_t) const override {
    return options_.sequence_length;
  }
  // Errors: kData for a token outside the vocabulary, kInternal for a sample that is not there.
  [[nodiscard]] Sample sample(std::int64_t i) const override;
  [[nodiscard]] std::string identity() const override;

 private:
  [[nodiscard]] static Frame frame(const BertDatasetOptions& options, DataSplit split,
                                   std::optional<std::int64_t> num_samples);

  BertDatasetOptions options_;
};

}  // namespace pentatron::datasets
