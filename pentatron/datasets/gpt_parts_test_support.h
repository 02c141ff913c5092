// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "pentatron/datasets/gpt_dataset.h"

// The three parts of one corpus, with their indices open to a test. Only tests include it.
namespace pentatron::datasets {

struct GptParts {
  std::shared_ptr<const Corpus> corpus;
  std::unique_ptr<GptDataset> train, valid, test;
};

// A part is null where no samples of it are asked for.
inline GptParts build_gpt_parts(const GptDatasetOptions& options, const SampleCounts& counts) {
  GptParts parts;
  parts.corpus = open_gpt_corpus(options);
  const auto build = [&](DataSplit split, std::int64_t count) -> std::unique_ptr<GptDataset> {
    if (count == 0) return nullptr;
    return std::make_unique<GptDataset>(parts.corpus, options, split, count);
  };
  parts.train = build(DataSplit::kTrain, counts.train);
  parts.valid = build(DataSplit::kValid, counts.valid);
  parts.test = build(DataSplit::kTest, counts.test);
  return parts;
}

}  // namespace pentatron::datasets
