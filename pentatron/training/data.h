// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "pentatron/config/config.h"
#include "pentatron/datasets/data_loader.h"
#include "pentatron/datasets/gpt_dataset.h"
#include "pentatron/tensor/batch_meta.h"
#include "pentatron/tensor/precision.h"
#include "pentatron/tokenizers/tokenizer.h"

namespace pentatron::training {

// A loader's micro-batch as the model reads it.
[[nodiscard]] BatchMeta to_batch_meta(const datasets::Batch& batch, const PrecisionPolicy& policy);

// The batch with its tensors on `device` (those that are there already stay as they are); host
// copies are kept.
[[nodiscard]] BatchMeta to_device(BatchMeta batch, Device device);

// Corpus and its three parts, as --data-path or --mock-data, --split and the batch options ask.
class TrainingData final {
 public:
  // Collective in effect: the last data-parallel ranks find the index caches that rank 0 built when
  // `builder_first` is honoured by the caller.
  TrainingData(const config::RunConfig& config, const tokenizers::Tokenizer& tokenizer);

  [[nodiscard]] const datasets::GptDataset* part(datasets::DataSplit split) const;
  // Hash of all that decides the order and content of training samples: corpus identity,
  // shuffled indices, masks, tokenizer; never paths.
  [[nodiscard]] const std::string& identity() const { return identity_; }
  [[nodiscard]] const datasets::SampleCounts& counts() const { return counts_; }

 private:
  datasets::SampleCounts counts_;
  datasets::GptDatasets datasets_;
  std::string identity_;
};

// The data-parallel rank's micro-batches, step after step.
class BatchStream final {
 public:
  // Training data never comes back to its start within a run; evaluation sets do.
  enum class AtEnd { kError, kStartAnew };

  BatchStream(const datasets::SampleSource& source, const config::RunConfig& config,
              std::int64_t dp_rank, std::int64_t consumed_samples, const PrecisionPolicy& policy,
              AtEnd at_end = AtEnd::kStartAnew);
  ~BatchStream();
  // The next step's micro-batches.
  [[nodiscard]] std::vector<BatchMeta> next();

 private:
  void open(std::int64_t consumed_samples);

  const datasets::SampleSource& source_;
  datasets::DataLoaderOptions options_;
  std::unique_ptr<datasets::DataLoader> loader_;
  std::int64_t micro_batches_per_step_;
  PrecisionPolicy policy_;
  AtEnd at_end_;
};

}  // namespace pentatron::training
