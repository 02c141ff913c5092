// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pentatron/datasets/corpus.h"
#include "pentatron/datasets/fim.h"
#include "pentatron/datasets/gpt_index_cache.h"
#include "pentatron/datasets/gpt_sample.h"
#include "pentatron/datasets/sample_source.h"
#include "pentatron/datasets/split.h"

namespace pentatron::datasets {

struct GptDatasetOptions {
  std::string data_path = {};  // prefix of the corpus
  bool mock_data = false;      // MockCorpus instead: no files are read or written
  std::string split = "969, 30, 1";
  std::int64_t sequence_length = 0;  // tokens of a sample
  std::int64_t seed = 1234;
  std::string data_cache_path;  // empty: <prefix>/cache/GPTDataset_indices
  bool mmap_bin_files = true;
  std::int64_t vocab_size = 0;  // tokens at or above are refused when read
  // Tokens of the tokenizer, by which mock documents count; 0: vocab_size.
  std::int64_t tokenizer_vocab_size = 0;
  std::int64_t eod = 0;
  tokenizers::TokenizerDescription tokenizer;  // names the cache files
  GptMaskOptions masks;
  std::shared_ptr<const FimTransform> fim = {};  // fill in the middle; null: text as it stands
  // Megatron's drop_last_partial_validation_sequence, which no option of it sets: the tokens behind
  // the last whole validation sample go, or are a short one that is filled up with padding.
  bool drop_last_partial_validation_sequence = true;
  bool quiet = false;             // no lines about its indices
  CacheLog* cache_log = nullptr;  // told what became of the caches
  // Samples that the order was drawn for before, in rising order, where a run was lengthened
  // (--append-epochs): what they gave stays, and further epochs are drawn after it.
  std::vector<std::int64_t> planned_before = {};
};

// The request behind a dataset of these options: its description names the cache files.
[[nodiscard]] GptIndexRequest gpt_index_request(const GptDatasetOptions& options, DataSplit split,
                                                std::optional<std::int64_t> num_samples);

// The corpus of these options. Errors: those of IndexedDataset; kData when it holds no documents.
[[nodiscard]] std::shared_ptr<const Corpus> open_gpt_corpus(const GptDatasetOptions& options);

// Samples of a fixed length cut from the shuffled sequences of one part of a corpus. Sample i is
// the i-th in training order, a function of the options alone.
//
// With `planned_before` the order is in segments: the first is that of the first number, whole
// epochs; each further number beyond the samples so far adds a segment of whole epochs for the
// rest, drawn with the seed of the next number. No sample reaches from one segment into the next.
class GptDataset final : public SampleSource {
 public:
  // `num_samples` none: one epoch. Errors: those of gpt_index.h, and kData for a part without
  // sequences.
  GptDataset(std::shared_ptr<const Corpus> corpus, const GptDatasetOptions& options,
             DataSplit split, std::optional<std::int64_t> num_samples);

  // Of an index that was made elsewhere, which must be of the whole corpus and is not checked.
  GptDataset(std::shared_ptr<const Corpus> corpus, const GptDatasetOptions& options,
             GptIndex index);

  // Built samples: as many as whole epochs give, at least those asked for.
  [[nodiscard]] std::int64_t num_samples() const override {
    return segments_.back().begin + segments_.back().index.num_samples();
  }
  [[nodiscard]] std::int64_t length(std::int64_t) const override { return sequence_length_; }
  // Errors: kData for a token outside the vocabulary (names the corpus and the sequence), kInternal
  // for a sample that is not there.
  [[nodiscard]] Sample sample(std::int64_t i) const override;

  // Of corpus, split, seed, masks and the shuffled indices, which are read whole: the samples asked
  // for decide the number of epochs and with it the order.
  [[nodiscard]] std::string identity() const override;

  // The bare tokens of sample i and where corpus sequences begin in them.
  [[nodiscard]] GptText text(std::int64_t i) const;

  // Of the first segment, mostly the only one.
  [[nodiscard]] const GptIndex& index() const { return segments_.front().index; }

 private:
  struct Segment {
    std::int64_t begin = 0;  // its first sample
    GptIndex index;
  };
  GptDataset(std::shared_ptr<const Corpus> corpus, const GptDatasetOptions& options);
  [[nodiscard]] const Segment& segment_of(std::int64_t i) const;

  std::shared_ptr<const Corpus> corpus_;
  std::string split_;
  std::int64_t seed_;
  std::int64_t sequence_length_;
  std::int64_t vocab_size_;
  std::int64_t eod_;
  GptMaskOptions masks_;
  bool may_end_short_;
  std::shared_ptr<const FimTransform> fim_;
  std::vector<Segment> segments_;
};

}  // namespace pentatron::datasets
