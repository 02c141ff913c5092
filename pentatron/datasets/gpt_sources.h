// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pentatron/datasets/blend.h"
#include "pentatron/datasets/blended_dataset.h"
#include "pentatron/datasets/gpt_dataset.h"

namespace pentatron::datasets {

// What a run draws its samples from; a part is null where no samples of it are asked for.
struct GptSources {
  std::vector<std::shared_ptr<const Corpus>> corpora;
  std::unique_ptr<SampleSource> train;
  std::unique_ptr<SampleSource> valid;
  std::unique_ptr<SampleSource> test;
};

// Samples of one part of a corpus.
struct MemberRequest {
  const std::shared_ptr<const Corpus>& corpus;
  const std::string& prefix;
  DataSplit split;
  std::optional<std::int64_t> count;  // at least so many; none: one epoch
  std::vector<std::int64_t> before;   // GptDatasetOptions::planned_before
  bool alone;                         // it is no member of a blend
};

// How the sources of one kind of samples are made.
struct SourceKind {
  // The corpus of a prefix.
  std::function<std::shared_ptr<const Corpus>(const std::string& prefix)> open;
  std::function<BlendMember(const MemberRequest& request)> make;
  std::string cache_path = {};    // of blends; empty: drawn anew
  CacheLog* cache_log = nullptr;  // told what becomes of them
};

struct MixOptions {
  Blend blend;  // empty: one source without a name
  // Samples that are built of a member beyond its share of a weighted blend.
  double surplus = 0.005;
  // The whole of the validation part once, instead of as many samples as asked for.
  bool full_validation = false;
  // Training samples that the order was drawn for before (GptDatasetOptions::planned_before). A
  // blend takes its members in an order that more samples only lengthen.
  std::vector<std::int64_t> train_before = {};
};

// One corpus without weights is a source by itself, anything else a BlendedDataset of one source a
// corpus, as Megatron builds them: with weights each part of `size` samples takes ceil(size *
// weight) of each; without, each corpus gives one epoch, in proportion to its size, and a part may
// end up smaller than asked for. Corpora are opened and sources made by several threads. Errors:
// those of `kind` and of BlendedDataset; kConfig for a full validation of a weighted blend.
[[nodiscard]] GptSources build_sources(const SourceKind& kind, const MixOptions& mix,
                                       const SampleCounts& counts);

struct GptSourceOptions {
  GptDatasetOptions dataset;  // its data_path stands for each corpus in turn
  MixOptions mix;             // without a blend with mock data
};

// Sources of text (GptDataset). Errors: those of GptDataset and build_sources.
[[nodiscard]] GptSources build_gpt_sources(const GptSourceOptions& options,
                                           const SampleCounts& counts);

}  // namespace pentatron::datasets
