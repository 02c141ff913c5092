// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "pentatron/distributed/flat_layout.h"

namespace pentatron::distributed {

// What of the training state is cut over the ranks of `shard_over`; each includes those before it.
enum class Sharding {
  kNothing,
  kOptimizer,   // main parameters and moments
  kGradients,   // reduced in every micro-batch
  kParameters,  // gathered per unit ahead of use, freed after
};

// As --data-parallel-sharding-strategy names it.
[[nodiscard]] constexpr std::string_view name_of(Sharding sharding) {
  switch (sharding) {
    case Sharding::kNothing:
      return "no_shard";
    case Sharding::kOptimizer:
      return "optim";
    case Sharding::kGradients:
      return "optim_grads";
    case Sharding::kParameters:
      break;
  }
  return "optim_grads_params";
}

struct StoreOptions {
  Sharding sharding = Sharding::kNothing;
  ShardCut cut = ShardCut::kElements;
  // Axes or factors of the grid: gradients are summed over both lists; shards are dealt over the
  // first, and stand in equal copies over the second. {inner}, {outer} is hybrid sharding.
  std::vector<std::string> shard_over = {"dp", "cp"};
  std::vector<std::string> replicate_over = {};
  std::string grid = {};  // see FlatLayoutOptions
  // See FlatLayoutOptions.
  std::int64_t bucket_elements = 0;
  std::int64_t num_buckets = 0;
  std::int64_t bucket_bytes = 40 << 20;
  // Updated parameters are waited for where they are used, not at the end of the update.
  bool overlap_gather = false;
  // Main parameters and optimizer state on the host, whatever the device: of the first weights, up
  // to this share of this rank's elements (a weight is never split).
  bool state_on_host = false;
  double host_fraction = 1.0;
  // Their gradients come and their parameters go batch by batch on a stream of their own, while the
  // host updates the batch between.
  bool overlap_host_copies = false;
};

}  // namespace pentatron::distributed
