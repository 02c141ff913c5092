// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/gpt_sources.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/base/log.h"
#include "pentatron/base/screen.h"
#include "pentatron/datasets/for_each_member.h"

namespace pentatron::datasets {
namespace {

using MaybeCount = std::optional<std::int64_t>;  // none: one epoch

class BlendBuilder final {
 public:
  BlendBuilder(const SourceKind& kind, const MixOptions& mix,
               const std::vector<std::shared_ptr<const Corpus>>& corpora)
      : kind_(kind), mix_(mix), corpora_(corpora), weights_(mix.blend.weights) {
    if (!weights_.empty()) weights_ = normalized_weights(weights_);
  }

  // `size` none: every sample once.
  std::unique_ptr<SampleSource> build(DataSplit split, MaybeCount size) const {
    PENTATRON_CHECK(size || weights_.empty(), kConfig,
                    "--full-validation takes each validation corpus once, so they have no weights: "
                    "give the prefixes alone");
    std::vector<MaybeCount> counts(corpora_.size());
    std::vector<std::vector<std::int64_t>> before(corpora_.size());
    std::int64_t total = 0;
    if (!weights_.empty()) {
      const std::vector<std::int64_t> targets = blend_targets(weights_, *size);
      for (std::size_t i = 0; i < targets.size(); ++i) {
        total += targets[i];
        counts[i] = with_surplus(targets[i], mix_.surplus);
      }
      if (split == DataSplit::kTrain) before = shares_before();
    }
    std::vector<BlendMember> members(corpora_.size());
    for_each_member(members.size(), [&](std::size_t i) {
      members[i] = kind_.make({.corpus = corpora_[i],
                               .prefix = mix_.blend.prefixes[i],
                               .split = split,
                               .count = counts[i],
                               .before = before[i],
                               .alone = false});
    });
    BlendedDataset::Options blend{
        .split = split, .cache_path = kind_.cache_path, .cache_log = kind_.cache_log};
    if (!weights_.empty()) {
      blend.weights = weights_;
      blend.size = total;
    } else if (size) {
      std::int64_t available = 0;
      for (const BlendMember& one : members) available += one.source->num_samples();
      blend.size = std::min(*size, available);
    }
    auto blended = std::make_unique<BlendedDataset>(std::move(members), blend);
    if (!screen::is_terse())
      log::info("Blend of {} corpora, {}: {} samples", corpora_.size(), to_string(split),
                blended->num_samples());
    return blended;
  }

 private:
  // What each member was asked for when the blend was of mix_.train_before samples.
  [[nodiscard]] std::vector<std::vector<std::int64_t>> shares_before() const {
    std::vector<std::vector<std::int64_t>> shares(corpora_.size());
    for (const std::int64_t size : mix_.train_before) {
      const std::vector<std::int64_t> targets = blend_targets(weights_, size);
      for (std::size_t i = 0; i < targets.size(); ++i) {
        shares[i].push_back(with_surplus(targets[i], mix_.surplus));
      }
    }
    return shares;
  }

  const SourceKind& kind_;
  const MixOptions& mix_;
  const std::vector<std::shared_ptr<const Corpus>>& corpora_;
  std::vector<double> weights_;
};

}  // namespace

GptSources build_sources(const SourceKind& kind, const MixOptions& mix,
                         const SampleCounts& counts) {
  GptSources sources;
  std::vector<std::string> prefixes = mix.blend.prefixes;
  const bool alone = prefixes.size() <= 1 && !mix.blend.has_weights();
  if (prefixes.empty()) prefixes.emplace_back();
  sources.corpora.resize(prefixes.size());
  for_each_member(prefixes.size(),
                  [&](std::size_t i) { sources.corpora[i] = kind.open(prefixes[i]); });
  const BlendBuilder blends(kind, mix, sources.corpora);
  const auto build = [&](DataSplit split, std::int64_t count) -> std::unique_ptr<SampleSource> {
    if (count == 0) return nullptr;
    const bool whole = mix.full_validation && split == DataSplit::kValid;
    const MaybeCount asked = whole ? MaybeCount{} : MaybeCount{count};
    if (!alone) return blends.build(split, asked);
    return kind
        .make(
            {.corpus = sources.corpora.front(),
             .prefix = prefixes.front(),
             .split = split,
             .count = asked,
             .before = split == DataSplit::kTrain ? mix.train_before : std::vector<std::int64_t>(),
             .alone = true})
        .source;
  };
  sources.train = build(DataSplit::kTrain, counts.train);
  sources.valid = build(DataSplit::kValid, counts.valid);
  sources.test = build(DataSplit::kTest, counts.test);
  return sources;
}

GptSources build_gpt_sources(const GptSourceOptions& options, const SampleCounts& counts) {
  const auto options_of = [&](const std::string& prefix) {
    GptDatasetOptions dataset = options.dataset;
    if (!prefix.empty()) dataset.data_path = prefix;
    return dataset;
  };
  const auto make = [&](const MemberRequest& member) -> BlendMember {
    GptDatasetOptions dataset = options_of(member.prefix);
    dataset.quiet = dataset.quiet || !member.alone;
    dataset.planned_before = member.before;
    const GptIndexRequest request = gpt_index_request(dataset, member.split, member.count);
    // A lengthened member is another than one that was drawn for as many samples at once.
    const std::string after =
        member.before.empty() ? "" : fmt::format(" after {}", fmt::join(member.before, ", "));
    return {
        .source = std::make_unique<GptDataset>(member.corpus, dataset, member.split, member.count),
        .description = gpt_index_description(request, MegatronVersion::kNewer) + after,
        .older_description = gpt_index_description(request, MegatronVersion::k016) + after};
  };
  return build_sources(
      {.open = [&](const std::string& prefix) { return open_gpt_corpus(options_of(prefix)); },
       .make = make,
       .cache_path = options.dataset.data_cache_path,
       .cache_log = options.dataset.cache_log},
      options.mix, counts);
}

}  // namespace pentatron::datasets
