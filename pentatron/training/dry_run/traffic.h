// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "pentatron/pipeline_parallel/schedule.h"
#include "pentatron/training/dry_run/model_place.h"

namespace pentatron::training::dry_run {

enum class Operation { kAllReduce, kAllGather, kReduceScatter, kAllToAll, kSend };
[[nodiscard]] std::string_view to_string(Operation operation);

// What one rank sends in a training step, by axis and use.
struct Traffic {
  std::string axis;  // "tp", "dp-cp"
  std::string use;   // "activations", "gradients"
  Operation operation = Operation::kSend;
  std::int64_t calls = 0;
  std::int64_t bytes = 0;  // of the tensors as they are whole: gathered, before a scatter, sent
  std::int64_t sent = 0;   // by this rank, as rings do it: (n - 1) / n of them, twice for a sum
};

// Of a rank that stands at `place` and runs `list`, from the sizes that its leaves and stores move.
// Scalars (loss, counts, norms), vocabulary statistics aside, are left out.
[[nodiscard]] std::vector<Traffic> step_traffic(const ModelPlace& place, std::int64_t rank,
                                                const pipeline_parallel::ActionList& list,
                                                std::int64_t num_micro_batches);

}  // namespace pentatron::training::dry_run
