// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace pentatron::datasets {

// Which samples a data-parallel rank reads, and in which micro-batches. A step takes the next
// global_batch_size samples in training order; a rest smaller than that is dropped. All tensor,
// pipeline and context ranks of one data-parallel rank read the same samples. A pure function: safe
// from any number of threads.
class BatchPlan {
 public:
  virtual ~BatchPlan() = default;
  BatchPlan(const BatchPlan&) = delete;
  BatchPlan& operator=(const BatchPlan&) = delete;

  [[nodiscard]] std::int64_t global_batch_size() const { return global_batch_size_; }
  [[nodiscard]] std::int64_t dp_size() const { return dp_size_; }

  // Places in training order of the samples of each of the rank's micro-batches; `consumed` is the
  // number of samples before the step. Ranks may have different numbers of micro-batches, one even
  // none; together they read every sample of the step once. Another rank or a negative number:
  // ErrorKind::kInternal.
  [[nodiscard]] virtual std::vector<std::vector<std::int64_t>> micro_batches(
      std::int64_t consumed, std::int64_t dp_rank) const = 0;

  // Whole steps left after `consumed` of `total` samples.
  [[nodiscard]] std::int64_t num_steps(std::int64_t total, std::int64_t consumed) const {
    return std::max<std::int64_t>(0, total - consumed) / global_batch_size_;
  }

 protected:
  // The constructors of plans refuse sizes below 1.
  BatchPlan(std::int64_t global_batch_size, std::int64_t dp_size)
      : global_batch_size_(global_batch_size), dp_size_(dp_size) {}
  // What micro_batches() refuses.
  void check_rank(std::int64_t consumed, std::int64_t dp_rank) const;

 private:
  std::int64_t global_batch_size_;
  std::int64_t dp_size_;
};

}  // namespace pentatron::datasets
