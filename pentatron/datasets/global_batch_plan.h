// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace pentatron::datasets {

// Which samples a data-parallel rank reads (Megatron's `single` loader). A step takes the next
// global_batch_size samples in training order; they are cut into global micro-batches of
// micro_batch_size * dp_size, and each rank takes its contiguous slice of every one. So the samples
// of a step do not depend on the layout. A rest smaller than a global batch is dropped. All tensor,
// pipeline and context ranks of one dp rank read the same samples.
class GlobalBatchPlan final {
 public:
  // ErrorKind::kConfig unless all are positive and micro_batch_size * dp_size divides
  // global_batch_size.
  GlobalBatchPlan(std::int64_t global_batch_size, std::int64_t micro_batch_size,
                  std::int64_t dp_size);

  [[nodiscard]] std::int64_t global_batch_size() const { return global_batch_size_; }
  [[nodiscard]] std::int64_t micro_batch_size() const { return micro_batch_size_; }
  [[nodiscard]] std::int64_t dp_size() const { return dp_size_; }
  // Micro-batches of a rank in a step.
  [[nodiscard]] std::int64_t num_micro_batches() const {
    return global_batch_size_ / (micro_batch_size_ * dp_size_);
  }

  // Whole steps left after `consumed` of `total` samples.
  [[nodiscard]] std::int64_t num_steps(std::int64_t total, std::int64_t consumed) const;

  // Places in training order of the samples of one micro-batch; `consumed` is the number of samples
  // before the step.
  [[nodiscard]] std::vector<std::int64_t> sample_ids(std::int64_t consumed, std::int64_t dp_rank,
                                                     std::int64_t micro_batch_index) const;

 private:
  std::int64_t global_batch_size_;
  std::int64_t micro_batch_size_;
  std::int64_t dp_size_;
};

}  // namespace pentatron::datasets
