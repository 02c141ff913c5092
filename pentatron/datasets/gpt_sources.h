// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "pentatron/datasets/blend.h"
#include "pentatron/datasets/gpt_dataset.h"

namespace pentatron::datasets {

// What a run draws its samples from; a part is null where no samples of it are asked for.
struct GptSources {
  std::vector<std::shared_ptr<const Corpus>> corpora;
  std::unique_ptr<SampleSource> train;
  std::unique_ptr<SampleSource> valid;
  std::unique_ptr<SampleSource> test;
};

struct GptSourceOptions {
  GptDatasetOptions dataset;  // its data_path stands for each corpus in turn
  Blend blend;                // empty with mock data
  // Samples that are built of a member beyond its share of a weighted blend.
  double surplus = 0.005;
  // The whole of the validation part once, instead of as many samples as asked for.
  bool full_validation = false;
};

// One corpus without weights is a GptDataset, anything else a BlendedDataset of one dataset a
// corpus, as Megatron builds them: with weights each part of `size` samples takes ceil(size *
// weight) of each; without, each corpus gives one epoch, in proportion to its size, and a part may
// end up smaller than asked for. Corpora are opened and indexed by several threads. Errors: those
// of GptDataset and BlendedDataset; kConfig for a full validation of a weighted blend.
[[nodiscard]] GptSources build_gpt_sources(const GptSourceOptions& options,
                                           const SampleCounts& counts);

}  // namespace pentatron::datasets
