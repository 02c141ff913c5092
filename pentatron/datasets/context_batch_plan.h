// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/datasets/batch_plan.h"
#include "pentatron/datasets/context_plan.h"
#include "pentatron/datasets/sample_source.h"

namespace pentatron::datasets {

// The samples of a step dealt over the dp x cp ranks of a stage, which are the plan's dp_size
// ranks: each by itself or in groups that share samples (context_plan.h). All ranks of a group read
// its samples whole. Every rank makes the whole plan from the lengths, so none is sent.
class ContextBatchPlan final : public BatchPlan {
 public:
  // The source must live longer. kConfig as plan_context, and unless global_batch_size is positive.
  ContextBatchPlan(const SampleSource& source, std::int64_t global_batch_size,
                   ContextPlanOptions options);

  // kData for a sample that no group can hold.
  [[nodiscard]] std::vector<std::vector<std::int64_t>> micro_batches(
      std::int64_t consumed, std::int64_t dp_rank) const override;
  // Ranks that share each of them, in the same order.
  [[nodiscard]] std::vector<std::int64_t> group_sizes(std::int64_t consumed,
                                                      std::int64_t dp_rank) const;

 private:
  [[nodiscard]] std::vector<ContextMicroBatch> plan_of(std::int64_t consumed,
                                                       std::int64_t dp_rank) const;

  const SampleSource& source_;
  ContextPlanOptions options_;
};

}  // namespace pentatron::datasets
