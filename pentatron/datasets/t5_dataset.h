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

struct T5DatasetOptions {
  std::string split = "969, 30, 1";          // of the documents
  std::int64_t encoder_sequence_length = 0;  // rows of the encoder
  std::int64_t decoder_sequence_length = 0;  // rows of the decoder
  std::int64_t seed = 1234;
  double short_sequence_probability = 0.1;
  MaskOptions mask = {.max_ngram = 10, .geometric = true};
  SentenceCache cache = {};
};

// T5's samples of a corpus of sentences (C. Raffel et al. 2019), as Megatron's
// T5MaskedWordPieceDataset makes them: runs of words are cut out of the text, a sentinel is put at
// each place, and the decoder is to write the sentinels with what stood there:
//   encoder:  text <extra_id_0> text <extra_id_1> text
//   decoder:  BOS <extra_id_0> words <extra_id_1> words, predicting the same without BOS, then EOS
//
// Sequences "encoder" and "decoder"; what is used is one attention segment, its padding another.
// Fields: "encoder_tokens", "encoder_mask" (1: a token that counts), "decoder_tokens",
// "decoder_mask", "labels" (0 in the padding; Megatron has -1), "loss_mask", and "truncated" of one
// value (1: tokens were cut off).
class T5Dataset final : public SentenceSource {
 public:
  // `num_samples` none: one epoch. The vocabulary must have bos, eos and sentinels, else kConfig;
  // other errors: those of build_sentence_index, and kData when the split leaves no document.
  T5Dataset(std::shared_ptr<const IndexedDataset> corpus,
            std::shared_ptr<const MaskVocabulary> vocabulary, const T5DatasetOptions& options,
            DataSplit split, std::optional<std::int64_t> num_samples);

  [[nodiscard]] std::int64_t length(std::int64_t) const override {
    return options_.encoder_sequence_length + options_.decoder_sequence_length;
  }
  // Errors: kConfig when a sample needs more sentinels than there are, or more rows of the decoder;
  // kData for a token outside the vocabulary; kInternal for a sample that is not there.
  [[nodiscard]] Sample sample(std::int64_t i) const override;
  [[nodiscard]] std::string identity() const override;

 private:
  [[nodiscard]] static Frame frame(const T5DatasetOptions& options, DataSplit split,
                                   std::optional<std::int64_t> num_samples);

  T5DatasetOptions options_;
};

}  // namespace pentatron::datasets
