// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "pentatron/comm/parallel_context.h"
#include "pentatron/nn/kv_cache.h"
#include "pentatron/nn/local_stages.h"
#include "pentatron/pipeline_parallel/executor.h"

namespace pentatron::inference {

// Forward of the micro-batches through all ranks' stages; `options.on_output` gets the results
// where they come out. `caches`: one for each of this rank's stages, or none.
void forward_pass(nn::LocalStages& stages, comm::ParallelContext& context,
                  std::span<const std::unique_ptr<nn::KvCache>> caches,
                  const std::vector<Batch>& micro_batches,
                  const pipeline_parallel::ExecutorOptions& options);

}  // namespace pentatron::inference
