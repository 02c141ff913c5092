// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <memory_resource>
#include <optional>
#include <vector>

#include "pentatron/datasets/batch_plan.h"
#include "pentatron/datasets/sample_batch.h"

namespace pentatron::datasets {

struct DataLoaderOptions {
  std::shared_ptr<const BatchPlan> plan;
  std::int64_t dp_rank = 0;
  std::int64_t consumed_samples = 0;  // samples before the first step; any count
  // Training order ends here even if the source has more; none: at the source's end. Evaluation
  // over a fixed set sets it.
  std::optional<std::int64_t> total_samples = std::nullopt;
  std::int64_t num_workers = 2;  // --num-workers: reading threads; 0: read in next()
  std::int64_t prefetch = 0;     // micro-batches read ahead; 0: two a worker
  // Of the batches' fields; null: plain memory. Pinned memory (tensor/host_memory.h) lets copies to
  // a device go on while the host does other things.
  std::shared_ptr<std::pmr::memory_resource> memory = nullptr;
};

// Yields the micro-batches of one dp rank, step after step, read ahead by threads. The sequence
// does not depend on the number of threads. Batches are read into buffers that are used again when
// whoever holds a batch lets go of it: after the first steps no more of them are made. next()
// belongs to one thread.
class DataLoader final {
 public:
  // The source must live longer. ErrorKind::kConfig when not one whole global batch is left, or
  // consumed is out of range.
  DataLoader(const SampleSource& source, DataLoaderOptions options);
  ~DataLoader();
  DataLoader(const DataLoader&) = delete;
  DataLoader& operator=(const DataLoader&) = delete;

  // The next step's micro-batches, as many as the plan says; none after the last whole global
  // batch. An error met while reading one is thrown here, in its place in the order, and again by
  // every later call.
  [[nodiscard]] std::optional<std::vector<std::shared_ptr<const SampleBatch>>> next();

  // Whole steps from the start of this loader to its end.
  [[nodiscard]] std::int64_t num_steps() const;
  // Samples of all ranks before the next step.
  [[nodiscard]] std::int64_t consumed_samples() const;
  // Time that next() has waited for data so far: not for what was read ahead in time.
  [[nodiscard]] double wait_seconds() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pentatron::datasets
