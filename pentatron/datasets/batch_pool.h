// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <vector>

#include "pentatron/datasets/sample_batch.h"

namespace pentatron::datasets {

// Batches that are used again: take() gives one that was given back, or a new one when none is
// there, and a batch that is handed out comes back by itself when its last owner lets go of it,
// whichever thread that is. It may outlive the pool's maker. Safe from several threads.
class BatchPool final : public std::enable_shared_from_this<BatchPool> {
 public:
  // `memory` of the batches' fields; null: plain.
  explicit BatchPool(std::shared_ptr<std::pmr::memory_resource> memory)
      : memory_(std::move(memory)) {}

  [[nodiscard]] std::unique_ptr<SampleBatch> take();
  // Of a pool that is held by a std::shared_ptr.
  [[nodiscard]] std::shared_ptr<const SampleBatch> hand_out(std::unique_ptr<SampleBatch> batch);

 private:
  void give_back(std::unique_ptr<SampleBatch> batch);

  std::shared_ptr<std::pmr::memory_resource> memory_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<SampleBatch>> free_;
};

}  // namespace pentatron::datasets
