// SPDX-License-Identifier: Apache-2.0
#include "pentatron/inference/forward_pass.h"

namespace pentatron::inference {

void forward_pass(nn::LocalStages& stages, comm::ParallelContext& context,
                  std::span<const std::unique_ptr<nn::KvCache>> caches,
                  const std::vector<Batch>& micro_batches,
                  const pipeline_parallel::ExecutorOptions& options) {
  std::vector<pipeline_parallel::StageSlot> slots;
  for (int chunk = 0; chunk < stages.size(); ++chunk) {
    slots.push_back(
        {.stage = &stages.at(chunk),
         .kv_cache = caches.empty() ? nullptr : caches[static_cast<std::size_t>(chunk)].get()});
  }
  const auto lists =
      pipeline_parallel::forward_only({.num_ranks = static_cast<int>(context.size("pp")),
                                       .num_micro_batches = static_cast<int>(micro_batches.size()),
                                       .num_chunks = stages.size()});
  pipeline_parallel::run_schedule(
      lists.at(static_cast<std::size_t>(context.coordinate("pp"))), slots,
      {.activations = context.group("pp"), .gradients = context.second_group("pp")}, micro_batches,
      options);
}

}  // namespace pentatron::inference
