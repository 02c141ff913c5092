// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "pentatron/datasets/array_sink.h"
#include "pentatron/datasets/corpus.h"
#include "pentatron/datasets/integer_array.h"

namespace pentatron::datasets {

// The sizes that follow from (tokens, samples, sequence length), before any shuffling.
struct GptIndexPlan {
  std::int64_t num_epochs = 1;
  // The last epoch is shuffled apart when fewer than 80 % of its samples are needed.
  bool separate_last_epoch = false;
  std::int64_t samples_before_last_epoch = 0;  // meaningful with separate_last_epoch
  std::int64_t num_samples = 0;  // in all epochs: (epochs * tokens - 1) / sequence length
};

// num_epochs is the smallest e with e * tokens_per_epoch >= num_samples * sequence_length + 1;
// without num_samples one epoch. With `keep_partial_sample` the tokens behind the last whole sample
// are one more, a short one. Errors (kData, kConfig): no tokens, not one sample, products past
// 2^63.
[[nodiscard]] GptIndexPlan plan_gpt_index(std::int64_t tokens_per_epoch,
                                          std::optional<std::int64_t> num_samples,
                                          std::int64_t sequence_length,
                                          bool keep_partial_sample = false);

// The order of the training data, as Megatron draws it:
// - document index (int32): the sequences of all epochs, shuffled;
// - sample index (int32, or int64 when the document index is longer than 2^31 - 1; pairs): sample n
//   begins at token n * sequence length of the sequences laid end to end in that order; stored as
//   (place in the document index, token in that sequence); behind a short one stands the last
//   token;
// - shuffle index (uint32, int64 from 2^32 - 2 samples): the order in which samples are drawn.
struct GptIndex {
  GptIndexPlan plan;
  IntegerArray document_index;
  IntegerArray sample_index;  // [num_samples + 1, 2]
  IntegerArray shuffle_index;

  [[nodiscard]] std::int64_t num_samples() const { return plan.num_samples; }
};

// What is being indexed: sequences [begin, end) of a corpus.
struct GptIndexSource {
  const Corpus* corpus = nullptr;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t sequence_length = 0;
  std::int64_t seed = 0;
  bool keep_partial_sample = false;  // the last tokens of all epochs are a sample, if a short one
};

// The plan of a source.
[[nodiscard]] GptIndexPlan plan_gpt_index(const GptIndexSource& source,
                                          std::optional<std::int64_t> num_samples);

// Tokens of the source's sequences together.
[[nodiscard]] std::int64_t tokens_per_epoch(const GptIndexSource& source);

// Builds all three indices: one MT19937 stream shuffles the document index first, then the shuffle
// index. Errors: those of plan_gpt_index, and kData for more than 2^31 - 1 sequences.
[[nodiscard]] GptIndex build_gpt_index(const GptIndexSource& source,
                                       std::optional<std::int64_t> num_samples);
// The same; the sample index, two thirds of the bytes or more, goes through a sink.
[[nodiscard]] GptIndex build_gpt_index(const GptIndexSource& source,
                                       std::optional<std::int64_t> num_samples,
                                       ArraySink& sample_index);

// Dtype of the sample index by the entries of the document index, and of the shuffle index by the
// number of samples.
[[nodiscard]] IntegerArray::Kind sample_index_kind(std::int64_t num_documents);
[[nodiscard]] IntegerArray::Kind shuffle_index_kind(std::int64_t num_samples);

// Compares kinds and sizes of the arrays with index.plan. What is wrong, or nothing.
[[nodiscard]] std::optional<std::string> check_gpt_index_sizes(const GptIndexSource& source,
                                                               const GptIndex& index);

// Checks indices from outside against the corpus: kinds, sizes, each sequence once an epoch, the
// sample index entry for entry, and that the shuffle index permutes its range (ranges, with a
// separate last epoch). Returns what is wrong, or nothing. Together this leaves only the
// permutations themselves to trust.
[[nodiscard]] std::optional<std::string> check_gpt_index(const GptIndexSource& source,
                                                         const GptIndex& index);

}  // namespace pentatron::datasets
