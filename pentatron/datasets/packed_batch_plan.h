// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/datasets/batch_plan.h"
#include "pentatron/datasets/sample_source.h"

namespace pentatron::datasets {

// Samples of any lengths in micro-batches of at most max_tokens rows: the samples of a step are
// packed in training order, each micro-batch taking what still fits, and each micro-batch goes to
// the rank that has the fewest rows so far (the lowest of equals). The micro-batches are those of
// one rank whatever the number of ranks; ranks may have different numbers of them.
class PackedBatchPlan final : public BatchPlan {
 public:
  // The source must live longer. ErrorKind::kConfig unless all are positive.
  PackedBatchPlan(const SampleSource& source, std::int64_t global_batch_size,
                  std::int64_t max_tokens, std::int64_t dp_size);

  // ErrorKind::kData for a sample longer than max_tokens.
  [[nodiscard]] std::vector<std::vector<std::int64_t>> micro_batches(
      std::int64_t consumed, std::int64_t dp_rank) const override;

 private:
  const SampleSource& source_;
  std::int64_t max_tokens_;
};

}  // namespace pentatron::datasets
