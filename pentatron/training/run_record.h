// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

#include "pentatron/config/config.h"
#include "pentatron/tensor/tensor.h"

namespace pentatron::training {

// What the metrics file tells of the process that writes it, so that a page needs nothing else
// (kind "run"): {"train_iters", "seq_length", "options": {destination: value as text, all that have
// an effect}, "layout": {"world_size", "tensor", "pipeline", "virtual_pipeline", "context",
// "expert", "data", "num_micro_batches", "device", "stages": [{"embedding", "first_layer",
// "end_layer", "loss"}], "schedule": {"name", "total_time", "bubble_share", "spans": [[["F" | "B" |
// "W", micro-batch, chunk, begin, end], ...] a pipeline rank]}}}. The schedule is played for the
// costs that it was chosen for, in their unit; without a pipeline, and where a step has too many
// actions for a picture, there is none.
[[nodiscard]] nlohmann::json run_record(const config::RunConfig& config, std::int64_t world_size,
                                        Device device);

}  // namespace pentatron::training
