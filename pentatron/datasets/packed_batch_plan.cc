// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/packed_batch_plan.h"

#include <utility>

#include "pentatron/base/error.h"

namespace pentatron::datasets {

PackedBatchPlan::PackedBatchPlan(const SampleSource& source, std::int64_t global_batch_size,
                                 std::int64_t max_tokens, std::int64_t dp_size)
    : BatchPlan(global_batch_size, dp_size), source_(source), max_tokens_(max_tokens) {
  PENTATRON_CHECK(global_batch_size >= 1 && max_tokens >= 1 && dp_size >= 1, kConfig,
                  "--global-batch-size {}, {} tokens a micro-batch and the data-parallel size {} "
                  "must be 1 or more",
                  global_batch_size, max_tokens, dp_size);
}

std::vector<std::vector<std::int64_t>> PackedBatchPlan::micro_batches(std::int64_t consumed,
                                                                      std::int64_t dp_rank) const {
  check_rank(consumed, dp_rank);
  std::vector<std::vector<std::int64_t>> mine;
  std::vector<std::int64_t> rows_of_rank(static_cast<std::size_t>(dp_size()), 0);
  std::vector<std::int64_t> packed;
  std::int64_t rows = 0;
  const auto deal = [&] {
    if (packed.empty()) return;
    const auto least = std::min_element(rows_of_rank.begin(), rows_of_rank.end());
    *least += rows;
    if (least - rows_of_rank.begin() == dp_rank) mine.push_back(packed);
    packed.clear();
    rows = 0;
  };
  for (std::int64_t id = consumed; id < consumed + global_batch_size(); ++id) {
    const std::int64_t length = source_.length(id);
    PENTATRON_CHECK(length <= max_tokens_, kData,
                    "sample {} has {} tokens, a packed micro-batch at most {}", id, length,
                    max_tokens_);
    if (rows + length > max_tokens_) deal();
    packed.push_back(id);
    rows += length;
  }
  deal();
  return mine;
}

}  // namespace pentatron::datasets
