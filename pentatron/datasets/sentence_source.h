// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pentatron/datasets/cache_log.h"
#include "pentatron/datasets/indexed_dataset.h"
#include "pentatron/datasets/integer_array.h"
#include "pentatron/datasets/masked_tokens.h"
#include "pentatron/datasets/numpy_random.h"
#include "pentatron/datasets/sample_source.h"
#include "pentatron/datasets/sentence_index.h"
#include "pentatron/datasets/split.h"

namespace pentatron::datasets {

// Where the index of a source of sentences is kept: an array `sample_index` (int64, [samples, 3]:
// first sentence, one past the last, most tokens, as Megatron's) under a description of all that
// decides it, in the one way of index_file.h.
struct SentenceCache {
  bool use = false;               // false: built, and no files are touched
  std::string dataset_path = {};  // the prefix as the user wrote it: part of the description
  std::string folder = {};        // --data-cache-path; empty: <prefix>/cache/{class}_indices
  CacheLog* log = nullptr;        // told what becomes of it
};

// The frame of BERT's and T5's samples: runs of whole sentences of one part of a corpus, in the
// order of build_sentence_index. What is made of a run is a class's own.
class SentenceSource : public SampleSource {
 public:
  struct Frame {
    std::string class_name;  // Megatron's
    std::string split;       // of the documents
    DataSplit part = DataSplit::kTrain;
    std::optional<std::int64_t> num_samples;  // none: one epoch
    std::int64_t max_tokens = 0;              // of a run
    double short_sequence_probability = 0.1;
    std::int64_t min_sentences = 1;
    std::int64_t seed = 1234;
    SentenceCache cache;
  };

  [[nodiscard]] std::int64_t num_samples() const final { return index_.size() / kColumns; }
  // The run of sample i; one that is not there: kInternal.
  [[nodiscard]] SentenceSpan span(std::int64_t i) const;

 protected:
  // Errors: those of build_sentence_index, and kData when the split leaves no document.
  SentenceSource(std::shared_ptr<const IndexedDataset> corpus,
                 std::shared_ptr<const MaskVocabulary> vocabulary, const Frame& frame);

  [[nodiscard]] const IndexedDataset& corpus() const { return *corpus_; }
  [[nodiscard]] const MaskVocabulary& vocabulary() const { return *vocabulary_; }
  // What sample i draws from: keyed by the sample, so that nothing else changes it.
  [[nodiscard]] NumpyRandomState random_of(std::int64_t i) const;
  // SHA-256 of the index.
  [[nodiscard]] std::string index_hash() const;

 private:
  static constexpr std::int64_t kColumns = 3;
  [[nodiscard]] static std::string description(const Frame& frame);
  void build(const SentenceIndexOptions& options);

  std::shared_ptr<const IndexedDataset> corpus_;
  std::shared_ptr<const MaskVocabulary> vocabulary_;
  std::int64_t seed_;
  IntegerArray index_;
};

}  // namespace pentatron::datasets
