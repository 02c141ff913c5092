// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/context_batch_plan.h"

#include <utility>

#include "pentatron/base/error.h"

namespace pentatron::datasets {

ContextBatchPlan::ContextBatchPlan(const SampleSource& source, std::int64_t global_batch_size,
                                   ContextPlanOptions options)
    : BatchPlan(global_batch_size, options.num_ranks), source_(source), options_(options) {
  PENTATRON_CHECK(global_batch_size >= 1, kConfig, "--global-batch-size {} must be 1 or more",
                  global_batch_size);
  static_cast<void>(plan_context({}, options_));  // refuses sizes before the first step
}

std::vector<ContextMicroBatch> ContextBatchPlan::plan_of(std::int64_t consumed,
                                                         std::int64_t dp_rank) const {
  check_rank(consumed, dp_rank);
  std::vector<std::int64_t> lengths;
  for (std::int64_t i = 0; i < global_batch_size(); ++i) {
    lengths.push_back(source_.length(consumed + i));
  }
  ContextPlan plan = plan_context(lengths, options_);
  return std::move(plan[static_cast<std::size_t>(dp_rank)]);
}

std::vector<std::vector<std::int64_t>> ContextBatchPlan::micro_batches(std::int64_t consumed,
                                                                       std::int64_t dp_rank) const {
  std::vector<std::vector<std::int64_t>> batches;
  for (const ContextMicroBatch& batch : plan_of(consumed, dp_rank)) {
    std::vector<std::int64_t>& ids = batches.emplace_back();
    for (const std::size_t i : batch.samples) {
      ids.push_back(consumed + static_cast<std::int64_t>(i));
    }
  }
  return batches;
}

std::vector<std::int64_t> ContextBatchPlan::group_sizes(std::int64_t consumed,
                                                        std::int64_t dp_rank) const {
  std::vector<std::int64_t> sizes;
  for (const ContextMicroBatch& batch : plan_of(consumed, dp_rank)) {
    sizes.push_back(batch.group_size);
  }
  return sizes;
}

}  // namespace pentatron::datasets
