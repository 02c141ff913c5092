// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "pentatron/bench/power_sampler.h"
#include "pentatron/bench/workloads.h"

namespace pentatron::bench {

// What a run of one workload gave; NaN where it is not known.
struct TrainResult {
  double step_seconds = 0;  // median of the steps that count
  double fastest = 0, slowest = 0;
  double tokens_per_second = 0;
  double flops_per_second = 0;  // causal attention counted half (training/log_format.h)
  double share_of_bound = 0;    // of the step's least time (train_bound.h)
  double joules_per_token = 0;
  PowerWindow power = {};
  double first_loss = 0;
  std::int64_t planned_memory = 0;  // as --check-options predicts it
  std::int64_t peak_memory = 0;     // the allocator's; 0: not told
};

// The numbers of a finished run: its metrics file, and what it printed.
[[nodiscard]] TrainResult read_result(const std::filesystem::path& metrics, const std::string& log,
                                      const Workload& workload);

struct TrainRequest {
  Device device = kCpu;
  std::vector<std::string> ids = {};  // those to run; empty: all. Unknown ones: kConfig
  std::int64_t steps = 0;             // that count; 0: as the workloads say
  double copy_bytes_per_second = 0;
  const PowerSampler* power = nullptr;
};
// Runs each workload in a process of its own (`pretrain_gpt`), after its bound was measured here,
// and prints the table as it goes. A run that fails is a line that says why, and the next one
// follows; returns whether all went well.
[[nodiscard]] bool measure_training(const TrainRequest& request, nlohmann::json& out);

}  // namespace pentatron::bench
