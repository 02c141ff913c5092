// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pentatron::bench {

// What `pentatron bench` is asked for.
struct BenchRequest {
  bool kernels = false;
  bool train = false;
  std::string device = "auto";              // auto, cpu or cuda
  std::vector<std::string> workloads = {};  // empty: all
  std::int64_t steps = 0;                   // that count, of a training; 0: as the workload says
  std::string json = {};                    // file; empty: none
};

// Measures the device's ceilings, then what was asked for, prints tables and writes the JSON file.
// Returns 0, or 1 where a training did not run.
[[nodiscard]] int run_bench(const BenchRequest& request);

}  // namespace pentatron::bench
