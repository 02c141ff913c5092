// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>

namespace pentatron::training {

// --log-progress: Megatron's progress.txt in the --save folder, one tab-separated line for each
// start and each save. kIo when it cannot be written.
class ProgressFile final {
 public:
  // Appends "Starting job". `flops`: model FLOPs of the whole run before this start.
  ProgressFile(const std::filesystem::path& folder, std::int64_t world_size, double flops);

  // Appends "Saved checkpoint": throughput of this job and of all jobs of this many ranks that the
  // file tells of (model TFLOP/s per rank, waiting included), FLOPs and tokens of the whole run.
  // `flops`, `tokens`: of the whole run so far.
  void saved(std::int64_t iteration, double flops, double tokens);

 private:
  void append(const std::string& text);

  std::filesystem::path path_;
  std::int64_t world_size_;
  double flops_at_start_;
  std::int64_t seconds_at_start_;
};

}  // namespace pentatron::training
