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

// In which dtype: policy.state, or with --use-precision-aware-optimizer what --exp-avg-dtype and
// --exp-avg-sq-dtype say of those.
[[nodiscard]] DType state_dtype(const config::OptimizerConfig& config,
                                const PrecisionPolicy& policy, std::string_view state);

// Sides of a matrix longer than this have no preconditioner under SOAP.
inline constexpr std::int64_t kMaxPreconditionedSide = 10000;
// Elements that --optimizer soap keeps of a matrix of rows x columns on every rank that holds some
// of it: its second moment in the eigenbasis, and of each side the statistic and the basis.
[[nodiscard]] std::int64_t soap_elements(std::int64_t rows, std::int64_t columns);

// Bytes that the store and the optimizer of one grid allocate on a rank for the life of a run, in
// all alignment and padding included.
struct TrainingStateBytes {
  std::int64_t parameters = 0;
  std::int64_t gradients = 0;
  std::int64_t main_parameters = 0;  // 0: the parameters are the main ones
  std::int64_t moments = 0;          // what the update rules keep
  // The same on the host, with the copies that travel.
  std::int64_t host_main_parameters = 0;
  std::int64_t host_moments = 0;
  std::int64_t host_gradients = 0;
  std::int64_t host_parameters = 0;
  [[nodiscard]] std::int64_t on_host() const {
    return host_main_parameters + host_moments + host_gradients + host_parameters;
  }
};
// `shard`: the rank's place among those that share the state. Nothing is allocated.
[[nodiscard]] TrainingStateBytes plan_training_state(const distributed::FlatLayout& layout,
                                                     const distributed::StoreOptions& options,
                                                     std::int64_t shard,
                                                     const config::OptimizerConfig& config,
                                                     const PrecisionPolicy& policy);

}  // namespace pentatron::optimizer
