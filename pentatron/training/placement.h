// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "pentatron/config/config.h"
#include "pentatron/tensor/tensor.h"

namespace pentatron::training {

// Where a rank computes and through which backend ranks communicate.
struct Placement {
  Device device = kCpu;
  std::string backend;  // nccl, gloo, threads or fake
};

// From --device and --distributed-backend: GPU LOCAL_RANK of this machine and nccl where there is
// a GPU for each local rank, else the CPU and gloo. gloo, threads and fake move host memory, so
// with them "auto" means the CPU. Loads the CUDA library: call before the first tensor operation.
// kConfig error for what does not go together (nccl without GPUs, GPUs without nccl) or cannot be
// had.
[[nodiscard]] Placement place_run(const config::ParallelConfig& parallel,
                                  const std::string& device);

// Ranks on this machine: the launcher's word, else all of them.
[[nodiscard]] std::int64_t local_ranks(const config::ParallelConfig& parallel);

// Process-wide settings for the place, and the GPU becomes the calling thread's. The CPU is always
// deterministic; a GPU with --deterministic-mode.
void set_up_place(const Placement& place, bool deterministic_mode);

}  // namespace pentatron::training
