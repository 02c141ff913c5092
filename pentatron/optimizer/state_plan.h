// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "pentatron/config/config.h"
#include "pentatron/distributed/store_options.h"

namespace pentatron::optimizer {

// What the rule of --optimizer keeps of a weight, by the names of checkpoints. `matrix`: whether
// the weight is one to the optimizer (nn::is_matrix). An unknown optimizer: kConfig.
[[nodiscard]] std::vector<std::string_view> states_of(const config::OptimizerConfig& config,
                                                      bool matrix);

// Bytes that the store and the optimizer of one grid allocate on a rank for the life of a run, in
// all alignment and padding included.
struct TrainingStateBytes {
  std::int64_t parameters = 0;
  std::int64_t gradients = 0;
  std::int64_t main_parameters = 0;  // 0: the parameters are the main ones
  std::int64_t moments = 0;          // what the update rules keep
  std::int64_t host_gradients = 0;   // copies beside a state on the host
};
// `shard`: the rank's place among those that share the state. Nothing is allocated.
[[nodiscard]] TrainingStateBytes plan_training_state(const distributed::FlatLayout& layout,
                                                     const distributed::StoreOptions& options,
                                                     std::int64_t shard,
                                                     const config::OptimizerConfig& config,
                                                     const PrecisionPolicy& policy);

}  // namespace pentatron::optimizer
