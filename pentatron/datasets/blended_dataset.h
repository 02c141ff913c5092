// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pentatron/datasets/cache_log.h"
#include "pentatron/datasets/integer_array.h"
#include "pentatron/datasets/sample_source.h"
#include "pentatron/datasets/split.h"

namespace pentatron::datasets {

// A source that is drawn from, and the text that describes it in the cache (Megatron's description
// of its index, which is part of the blend's).
struct BlendMember {
  std::unique_ptr<SampleSource> source;
  std::string description;        // as this version of Megatron writes it
  std::string older_description;  // as release 0.16.1 does
};

// Samples of several sources in the proportion of their weights, in Megatron's order.
class BlendedDataset final : public SampleSource {
 public:
  struct Options {
    // One a member, any sum. Empty: the members' sizes.
    std::vector<double> weights = {};
    // Samples; none: every sample of every member once (`weights` empty).
    std::optional<std::int64_t> size = {};
    DataSplit split = DataSplit::kTrain;
    std::string cache_path = {};    // --data-cache-path; empty: the order is drawn anew each time
    CacheLog* cache_log = nullptr;  // told what became of the cache
  };
  // Draws the order, or reads it from the cache; a damaged cache is rebuilt with a warning, one
  // that cannot be written is a warning. More samples than a member has: ErrorKind::kData naming
  // it.
  BlendedDataset(std::vector<BlendMember> members, const Options& options);

  [[nodiscard]] std::int64_t num_samples() const override { return members_index_.size(); }
  [[nodiscard]] std::int64_t length(std::int64_t i) const override;
  [[nodiscard]] Sample sample(std::int64_t i) const override;
  // Of the members and the order.
  [[nodiscard]] std::string identity() const override;

  // Where sample i comes from.
  [[nodiscard]] std::int64_t member(std::int64_t i) const { return members_index_[i]; }
  [[nodiscard]] std::int64_t member_sample(std::int64_t i) const { return samples_index_[i]; }

 private:
  std::vector<BlendMember> members_;
  IntegerArray members_index_;  // int16
  IntegerArray samples_index_;  // int64
};

// Python's json.dumps(indent=4) of Megatron's description of a blend, byte for byte; `members` are
// texts of that kind. `weights` empty: `sizes` stand for them.
[[nodiscard]] std::string blend_description(const std::vector<std::string>& members,
                                            const std::vector<double>& weights,
                                            const std::vector<std::int64_t>& sizes,
                                            std::optional<std::int64_t> size, DataSplit split);

}  // namespace pentatron::datasets
