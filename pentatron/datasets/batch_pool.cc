// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/batch_pool.h"

#include <utility>

namespace pentatron::datasets {

std::unique_ptr<SampleBatch> BatchPool::take() {
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      std::unique_ptr<SampleBatch> batch = std::move(free_.back());
      free_.pop_back();
      return batch;
    }
  }
  return std::make_unique<SampleBatch>(memory_);
}

std::shared_ptr<const SampleBatch> BatchPool::hand_out(std::unique_ptr<SampleBatch> batch) {
  return {batch.release(), [pool = shared_from_this()](SampleBatch* returned) {
            pool->give_back(std::unique_ptr<SampleBatch>(returned));
          }};
}

void BatchPool::give_back(std::unique_ptr<SampleBatch> batch) {
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(batch));
}

}  // namespace pentatron::datasets
