// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "pentatron/datasets/global_batch_plan.h"
#include "pentatron/datasets/gpt_sample.h"

namespace pentatron::datasets {

// One micro-batch of n samples of S tokens, sample-major: row j * S + t is token t of sample j.
struct Batch {
  std::int64_t num_samples = 0;
  std::int64_t sequence_length = 0;
  std::vector<std::int64_t> tokens;        // [n * S]
  std::vector<std::int64_t> labels;        // [n * S]
  std::vector<std::int32_t> loss_mask;     // [n * S], 0 or 1
  std::vector<std::int64_t> position_ids;  // [n * S]
  // Ends of the runs of tokens that may attend to each other: 0 = first, n * S = last; one run a
  // sample, or one a document with reset_attention_mask.
  std::vector<std::int64_t> cu_seqlens;
  std::vector<std::int64_t> sample_ids;  // [n], places in training order
};

// Reads the samples and lays them side by side. Samples of another length than the source says:
// ErrorKind::kInternal.
[[nodiscard]] Batch make_batch(const SampleSource& source, std::vector<std::int64_t> sample_ids);

struct DataLoaderOptions {
  GlobalBatchPlan plan;
  std::int64_t dp_rank = 0;
  std::int64_t consumed_samples = 0;  // samples before the first step; any count
  // Training order ends here even if the source has more; none: at the source's end. Evaluation
  // over a fixed set sets it.
  std::optional<std::int64_t> total_samples = std::nullopt;
  std::int64_t num_workers = 2;  // --num-workers: reading threads; 0: read in next()
  std::int64_t prefetch = 0;     // micro-batches read ahead; 0: two a worker
};

// Yields the micro-batches of one dp rank in training order, read ahead by threads. The sequence
// does not depend on the number of threads. next() belongs to one thread.
class DataLoader final {
 public:
  // The source must live longer. ErrorKind::kConfig when not one whole global batch is left, or
  // consumed is out of range.
  DataLoader(const SampleSource& source, DataLoaderOptions options);
  ~DataLoader();
  DataLoader(const DataLoader&) = delete;
  DataLoader& operator=(const DataLoader&) = delete;

  // The next micro-batch; none after the last whole global batch. An error met while reading it is
  // thrown here, in its place in the order, and again by every later call.
  [[nodiscard]] std::optional<Batch> next();

  // Whole steps from the start of this loader to its end.
  [[nodiscard]] std::int64_t num_steps() const;
  // Samples of all ranks before the next step that has not begun to be handed out.
  [[nodiscard]] std::int64_t consumed_samples() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pentatron::datasets
