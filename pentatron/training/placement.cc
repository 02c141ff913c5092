// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/placement.h"

#include <algorithm>

#include "pentatron/base/env.h"
#include "pentatron/base/error.h"
#include "pentatron/tensor/device.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::training {

std::int64_t local_ranks(const config::ParallelConfig& parallel) {
  constexpr std::int64_t kMaxRanks = 1 << 20;
  for (const char* name : {"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"}) {
    if (const auto count = env_int(name, 1, kMaxRanks)) return *count;
  }
  // Slurm spreads its tasks evenly unless told otherwise.
  if (env_string("SLURM_PROCID")) {
    const std::int64_t nodes = env_int("SLURM_NNODES", 1, kMaxRanks).value_or(1);
    return (parallel.world_size + nodes - 1) / nodes;
  }
  return parallel.world_size;
}

Placement place_run(const config::ParallelConfig& parallel, const std::string& device) {
  const std::string& backend = parallel.distributed_backend;
  const bool host_memory = backend == "gloo" || backend == "threads" || backend == "fake";
  if (host_memory && device == "cuda" && parallel.world_size > 1) {
    PENTATRON_THROW(kConfig,
                    "--device cuda with --distributed-backend {}: it moves host memory only; use "
                    "--distributed-backend nccl, or --device cpu",
                    backend);
  }
  const bool on_host = host_memory && parallel.world_size > 1 && device == "auto";
  const std::int64_t ranks_here =
      std::max(std::min(local_ranks(parallel), parallel.world_size), parallel.local_rank + 1);
  Placement place{.device = tensor::resolve_device(on_host ? "cpu" : device,
                                                   static_cast<int>(parallel.local_rank),
                                                   static_cast<int>(ranks_here)),
                  .backend = backend};
  if (backend == "auto") place.backend = place.device.is_cuda() ? "nccl" : "gloo";
  if (place.backend == "nccl" && place.device.is_cpu()) {
    PENTATRON_THROW(kConfig,
                    "--distributed-backend nccl on the CPU: it moves tensors between GPUs{}; use "
                    "--distributed-backend gloo or leave the option out",
                    device == "cpu" ? "" : ", and " + tensor::load_cuda_library().reason);
  }
  return place;
}

void set_up_place(const Placement& place, bool deterministic_mode) {
  tensor::set_up_process(/*deterministic=*/place.device.is_cpu() || deterministic_mode);
  tensor::use_device(place.device);
}

}  // namespace pentatron::training
