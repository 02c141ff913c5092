// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/datasets/batch_plan.h"

namespace pentatron::datasets {

// Micro-batches of a fixed number of samples (Megatron's `single` loader): a step is cut into
// global micro-batches of micro_batch_size * dp_size samples, and each rank takes its contiguous
// slice of every one. So the samples of a step do not depend on the layout, and every rank has
// equally many micro-batches.
class GlobalBatchPlan final : public BatchPlan {
 public:
  // ErrorKind::kConfig unless all are positive and micro_batch_size * dp_size divides
  // global_batch_size.
  GlobalBatchPlan(std::int64_t global_batch_size, std::int64_t micro_batch_size,
                  std::int64_t dp_size);

  [[nodiscard]] std::vector<std::vector<std::int64_t>> micro_batches(
      std::int64_t consumed, std::int64_t dp_rank) const override;

  // Micro-batches of a rank in a step.
  [[nodiscard]] std::int64_t num_micro_batches() const {
    return global_batch_size() / (micro_batch_size_ * dp_size());
  }

 private:
  std::int64_t micro_batch_size_;
};

}  // namespace pentatron::datasets
