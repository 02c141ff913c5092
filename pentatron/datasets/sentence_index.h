// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "pentatron/datasets/indexed_dataset.h"

namespace pentatron::datasets {

// A run of sentences of one document, of which a sample is made.
struct SentenceSpan {
  std::int64_t begin = 0;   // first sequence of the corpus
  std::int32_t count = 0;   // sequences
  std::int32_t target = 0;  // tokens that the sample is to have at most
  bool operator==(const SentenceSpan&) const = default;
};

struct SentenceIndexOptions {
  // Documents of the corpus, [begin, end).
  std::int64_t document_begin = 0;
  std::int64_t document_end = 0;
  std::optional<std::int64_t> num_samples = std::nullopt;  // none: one epoch
  std::int64_t max_tokens = 0;  // of a sample, without the tokens that are put around it; 2 or more
  double short_sequence_probability = 0.1;  // --short-seq-prob: share of samples cut shorter
  std::int64_t min_sentences = 1;           // of a sample
  std::int64_t seed = 1234;                 // 1 to 2^31 - 2
};

// Sentences longer than this keep a document of several sentences out.
inline constexpr std::int32_t kLongestSentence = 512;

// ErrorKind::kConfig for an option out of range; kInternal for documents that are not there.
void check_sentence_options(const IndexedDataset& corpus, const SentenceIndexOptions& options);

// Cuts documents into runs of whole sentences that reach a target length, and shuffles them: the
// index of BERT's and T5's samples, equal to that of Megatron's build_mapping (its helpers.cpp)
// draw for draw. A document is read to its end before another begins; the target is max_tokens, or
// with short_sequence_probability 2 to max_tokens, from one std::mt19937 over all epochs; the
// shuffle has an std::mt19937_64 of seed + 1. Documents of fewer than min_sentences sentences are
// left out. Whole epochs: the result may have more than num_samples. Errors: kConfig for an option
// out of range, kData when no document gives a sample.
[[nodiscard]] std::vector<SentenceSpan> build_sentence_index(const IndexedDataset& corpus,
                                                             const SentenceIndexOptions& options);

// Tokens [begin, end) of the sentences of a span laid end to end: reads no others.
[[nodiscard]] std::vector<std::int64_t> read_sentences(const IndexedDataset& corpus,
                                                       const SentenceSpan& span, std::int64_t begin,
                                                       std::int64_t end, std::int64_t vocab_size);

// Tokens of the sentences of a span.
[[nodiscard]] std::int64_t count_tokens(const IndexedDataset& corpus, const SentenceSpan& span);

}  // namespace pentatron::datasets
