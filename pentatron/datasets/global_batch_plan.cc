// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/global_batch_plan.h"

#include <numeric>

#include "pentatron/base/error.h"

namespace pentatron::datasets {

GlobalBatchPlan::GlobalBatchPlan(std::int64_t global_batch_size, std::int64_t micro_batch_size,
                                 std::int64_t dp_size)
    : BatchPlan(global_batch_size, dp_size), micro_batch_size_(micro_batch_size) {
  PENTATRON_CHECK(
      global_batch_size >= 1 && micro_batch_size >= 1 && dp_size >= 1, kConfig,
      "--global-batch-size {}, --micro-batch-size {} and the data-parallel size {} must "
      "be 1 or more",
      global_batch_size, micro_batch_size, dp_size);
  PENTATRON_CHECK(micro_batch_size <= global_batch_size / dp_size &&
                      global_batch_size % (micro_batch_size * dp_size) == 0,
                  kConfig,
                  "--global-batch-size {} does not divide by --micro-batch-size {} times the "
                  "data-parallel size {}",
                  global_batch_size, micro_batch_size, dp_size);
}

std::vector<std::vector<std::int64_t>> GlobalBatchPlan::micro_batches(std::int64_t consumed,
                                                                      std::int64_t dp_rank) const {
  check_rank(consumed, dp_rank);
  std::vector<std::vector<std::int64_t>> batches(static_cast<std::size_t>(num_micro_batches()));
  std::int64_t begin = consumed + dp_rank * micro_batch_size_;
  for (std::vector<std::int64_t>& ids : batches) {
    ids.resize(static_cast<std::size_t>(micro_batch_size_));
    std::iota(ids.begin(), ids.end(), begin);
    begin += dp_size() * micro_batch_size_;
  }
  return batches;
}

}  // namespace pentatron::datasets
